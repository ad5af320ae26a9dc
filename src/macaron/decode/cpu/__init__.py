"""Decoding on a CPU: the same network with packed matrices, in float32 or int8."""
