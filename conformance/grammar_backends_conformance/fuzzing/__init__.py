"""Random and broken requests for the front end: none may get anything but a `SpecError` out of it (D19, D20)."""
