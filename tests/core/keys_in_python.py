"""The index of keys as it would be in Python, beside which the one in C is put.

Without a compiler it stands for that one: SOW itself does without then.
"""

from sow.core.inner_loops import IN_PYTHON, in_c

PARTS = 128


class KeysInPython:
    """What `_key_index.c` has, with a dictionary."""

    def __init__(self, names, _mask=0):
        self._names = names
        self._slots = {}

    def __len__(self):
        return len(self._slots)

    def find(self, key):
        return self._slots.get(key, -1)

    def find_all(self, keys):
        if not all(isinstance(key, str) for key in keys):
            raise TypeError("a key is a str")
        return [self._slots.get(key) for key in keys]

    def add_all(self, keys, slots):
        return [self._add(key, slot) for key, slot in zip(keys, slots, strict=True)]

    def _add(self, key, slot):
        if not isinstance(key, str) or type(slot) is not int:
            raise TypeError("a key is a str, and a slot an int")
        if key not in self._slots:
            if slot < 0:
                raise IndexError("no slot of a name")
            if self._names[slot] != key:
                raise ValueError("a key is added before its name")
            self._slots[str(key)] = slot
        return self._slots[key]

    def pop(self, key):
        return self._slots.pop(key, -1)

    def slots_of(self, part):
        if not 0 <= part < PARTS:
            return None
        return [slot for slot in self._slots.values() if slot % PARTS == part]


KEY_INDEX = (in_c() or IN_PYTHON).key_index or KeysInPython
"""The fastest there is, whatever the environment chooses."""
INDEXES = [KeysInPython] if KEY_INDEX is KeysInPython else [KeysInPython, KEY_INDEX]
