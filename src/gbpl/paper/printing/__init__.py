"""The paper's tables and figures, as text, LaTeX and pictures."""
