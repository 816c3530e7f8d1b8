# SPDX-License-Identifier: Apache-2.0
"""Errors of the library as exceptions: the C sentence as text, the C code as `.code`.

They can be pickled, so DCP can carry them from one rank to all others.
"""

from __future__ import annotations

import pickle


class HearthError(RuntimeError):
    """A call of the library failed.

    code    the negative number of the C enum; its hundreds say what is damaged: 1 this call,
            2 one peer, 3 the checkpoint. 0: raised by this package itself
    name    "HEARTH_ENOENT" and the like; "" with code 0
    native  errno or the transport's number; 0: none
    """

    def __init__(self, text: str, code: int = 0, name: str = "", native: int = 0) -> None:
        super().__init__(text)
        self.code, self.name, self.native = code, name, native

    def __str__(self) -> str:
        return self.args[0]

    def __reduce__(self):
        return type(self), (self.args[0], self.code, self.name, self.native)


class HearthNotFound(HearthError, FileNotFoundError):
    """No such step, object or key."""


class HearthTimeout(HearthError, TimeoutError):
    """Not in time; the text names who was being waited for."""


class HearthNoSpace(HearthError, MemoryError):
    """No room in the store."""


class HearthBusy(HearthError):
    """All room is taken by saves that are not decided yet."""


class HearthCorrupt(HearthError):
    """Bytes that are not what they must be."""


class HearthRefused(HearthError, pickle.UnpicklingError):
    """Whole bytes that this reader will not decode: an item that needs trust, or a checkpoint of
    another kind. It is there, and no older one would serve better."""


class HearthLost(HearthError):
    """More failure domains are gone than there were copies."""


class HearthFailed(HearthError):
    """The save failed, or its outcome is unknown; the next one works."""


class HearthLibraryMissing(HearthError, ImportError):
    """libhearth was not found; the text says where it was looked for."""


# Code of the C enum -> its name and the exception for it.
CODES: dict[int, tuple[str, type[HearthError]]] = {
    -101: ("HEARTH_EINVAL", HearthError),
    -102: ("HEARTH_ENOENT", HearthNotFound),
    -103: ("HEARTH_EEXIST", HearthError),
    -104: ("HEARTH_ENOMEM", HearthNoSpace),
    -105: ("HEARTH_ENOSPC", HearthNoSpace),
    -106: ("HEARTH_EUNSUPPORTED", HearthError),
    -107: ("HEARTH_ECANCELED", HearthError),
    -108: ("HEARTH_ESTATE", HearthError),
    -109: ("HEARTH_EBUSY", HearthBusy),
    -110: ("HEARTH_EFORK", HearthError),
    -111: ("HEARTH_EIO", HearthError),
    -112: ("HEARTH_ELOCKED", HearthError),
    -201: ("HEARTH_EPEER", HearthError),
    -202: ("HEARTH_ETIMEOUT", HearthTimeout),
    -203: ("HEARTH_EAUTH", HearthError),
    -204: ("HEARTH_EPROTO", HearthError),
    -205: ("HEARTH_EENGINE", HearthError),
    -206: ("HEARTH_EDENIED", HearthError),
    -301: ("HEARTH_ECORRUPT", HearthCorrupt),
    -302: ("HEARTH_ELOST", HearthLost),
    -303: ("HEARTH_EFAILED", HearthFailed),
    -304: ("HEARTH_EUNKNOWN", HearthFailed),
}


# What sentences of the library call in C, as it is called here.
_CALLED = {"hearth_checkpoint_open()": "Job.checkpoint()",
           "hearth_checkpoint_open": "Job.checkpoint()",
           "hearth_open()": "Job.open()",
           "hearth_read_box()": "Checkpoint.read_boxes()",
           "hearth_read_bytes()": "Checkpoint.read_ranges()",
           "hearth_recover()": "hearth_checkpoint.torch.recover(), or Job.recover()",
           "hearth_recover_opts.common": "common= of recover()",
           "hearth_save_begin()": "Job.begin()",
           "hearth_save_bytes()": "save_bytes()",
           "hearth_save_give()": "Save.give()",
           "hearth_save_next_object()": "Save.next_object()",
           "hearth_save_next_object": "Save.next_object()",
           "hearth_save_put_common()": "Save.put_common()",
           "hearth_save_set_step()": "Save.set_step()",
           "hearth_wait()": "Handle.wait()",
           "recover with accept_loss": "start without it: recover(accept_loss=True)"}


def make(code: int, text: str, native: int = 0) -> HearthError:
    """The exception for a C code."""
    name, kind = CODES.get(code, ("", HearthError))
    for theirs, ours in _CALLED.items():
        text = text.replace(theirs, ours)
    return kind(text or f"{name or code}", code, name, native)
