"""The estimators that users fit, in the manner of scikit-learn."""
