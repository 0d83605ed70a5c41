"""Okabe and Ito's colours, which can be told apart with any kind of colour vision and in grey."""

BLUE, SKY, ORANGE, RED, GREEN, GREY = "#0072B2", "#56B4E9", "#E69F00", "#D55E00", "#009E73", "#767676"
PALE = "#F7DFCC"  # RED on white, for regions
