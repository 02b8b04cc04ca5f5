"""Models elsewhere: as scikit-learn, ONNX and skops objects, as one JSON file, and from other programs' loadings."""
