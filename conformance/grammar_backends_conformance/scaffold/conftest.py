"""Keeps pytest out of the template: its tests belong to what is generated from it."""

collect_ignore = ["template"]
