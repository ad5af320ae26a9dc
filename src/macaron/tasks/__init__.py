"""What is trained: translation, pre-training, classification."""
