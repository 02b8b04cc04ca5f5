"""Rows on a made-up device, from which nothing larger than a few numbers may be copied."""

from __future__ import annotations

import array_api_strict as strict
import pytest

DEVICE = strict.Device("device1")


def there(X):
    """The rows on a device that numpy cannot read."""
    return strict.asarray(X, device=DEVICE)


def forbid_copies(monkeypatch, most):
    """From now on, a copy of more than so many entries from the device fails a test.  Gives a list of their sizes."""
    kind, sizes = type(strict.asarray([0.0])), []
    move = kind.to_device

    def watched(array, device, /, **options):
        if device != DEVICE:
            sizes.append(array.size)
            if array.size > most:
                pytest.fail(f"an array of shape {array.shape} was copied from the device")
        return move(array, device, **options)

    monkeypatch.setattr(kind, "to_device", watched)
    return sizes
