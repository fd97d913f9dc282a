"""Epoch 0: a snapshot becomes the base image of every operator, part by part, with little memory."""
