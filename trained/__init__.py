"""What a trained run is used for: predictions, exports, fine-tuning."""
