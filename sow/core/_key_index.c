/* The key index: finds the slot of a key, for 8 bytes a key beside the keys themselves.

    hash of 32 bits ──> part ──> place (hash, slot) ──> the key in that slot of a list of names

A place has no key: names[slot] is, and is compared where the hashes are equal. The list is its
owner's, who puts a name into it before the key is added and takes it out after the key is popped.

Each of the parts is a table with open addressing. It grows, and shrinks, by itself, so that no step
moves many keys. Where a key goes the ones behind it move up, and nothing is left in its place.

No Python code runs while a part is read or changed: all keys are hashed and compared as str does,
those of a class derived from it too. Every slot is compared with the length of the list first. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

#if defined(__GNUC__)
#define FETCH(address) __builtin_prefetch(address)
#else
#define FETCH(address) ((void)(address))
#endif

#define PART_BITS 7
#define PARTS (1 << PART_BITS) /* A part of ten million keys grows in less than a millisecond. */
#define HOME_BITS (32 - PART_BITS)
#define SIZE_MIN 16
#define GROWTH 4 /* A part grows by a fourth: at most a third of its places is free then, */
#define FREE 5   /* and at least a fifth, so that a key that is not there is found out soon. */
#define THIN 8   /* With fewer keys than an eighth of its places a part shrinks. */
#define CHUNK 64 /* Keys whose places and names are fetched before the first of them is needed. */

typedef struct {
    uint32_t hash;
    uint32_t number; /* the slot, and one more; 0 is free */
} Place;

typedef struct {
    Place *places;
    uint32_t size;
    uint32_t used; /* always less than `size`, so that every search ends */
} Part;

typedef struct {
    PyObject_HEAD
    PyObject *names;
    uint32_t mask; /* of hashes: with few bits all keys collide, as tests want */
    Py_ssize_t count;
    Part parts[PARTS];
} KeyIndex;

static Part *
part_of(KeyIndex *self, uint32_t hash)
{
    return &self->parts[hash >> HOME_BITS];
}

/* Where the search for a hash begins. */
static uint32_t
home(const Part *part, uint32_t hash)
{
    uint64_t low = hash & ((UINT32_C(1) << HOME_BITS) - 1);
    return (uint32_t)((low * part->size) >> HOME_BITS);
}

static uint32_t
after(const Part *part, uint32_t at)
{
    return at + 1 == part->size ? 0 : at + 1;
}

/* How many places forward it is from one to another. */
static uint32_t
distance(const Part *part, uint32_t from, uint32_t to)
{
    return to >= from ? to - from : to + (part->size - from);
}

/* The hash of a key; 0 for an error. */
static int
hash_of(KeyIndex *self, PyObject *key, uint32_t *hash)
{
    if (!PyUnicode_Check(key)) {
        PyErr_SetString(PyExc_TypeError, "a key is a str");
        return 0;
    }
    Py_hash_t whole = PyUnicode_Type.tp_hash(key);
    if (whole == -1)
        return 0;
    uint64_t bits = (uint64_t)whole;
    *hash = (uint32_t)(bits ^ (bits >> 32)) & self->mask;
    return 1;
}

/* Whether the name in a slot is this key; -1 for an error. */
static int
is_named(KeyIndex *self, uint32_t number, PyObject *key)
{
    if ((Py_ssize_t)number > PyList_GET_SIZE(self->names))
        return 0;
    PyObject *name = PyList_GET_ITEM(self->names, (Py_ssize_t)number - 1);
    if (name == key)
        return 1;
    if (!PyUnicode_Check(name))
        return 0; /* the slot is free */
    PyObject *same = PyUnicode_RichCompare(name, key, Py_EQ);
    if (same == NULL)
        return -1;
    int is_same = same == Py_True;
    Py_DECREF(same);
    return is_same;
}

/* Search a key: 1, and where it is; 0, and the free place where the search has ended, if the part
   has any; -1 for an error. */
static int
search(KeyIndex *self, const Part *part, uint32_t hash, PyObject *key, uint32_t *at)
{
    if (part->size == 0)
        return 0;
    for (*at = home(part, hash); part->places[*at].number != 0; *at = after(part, *at)) {
        if (part->places[*at].hash != hash)
            continue;
        int found = is_named(self, part->places[*at].number, key);
        if (found != 0)
            return found;
    }
    return 0;
}

/* Give a part so many places, more than it has keys; 0 where there is no memory. */
static int
resize(Part *part, uint32_t size)
{
    Part other = {PyMem_Calloc(size, sizeof(Place)), size, part->used};
    if (other.places == NULL)
        return 0;
    for (uint32_t i = 0; i < part->size; i++) {
        if (part->places[i].number == 0)
            continue;
        uint32_t at = home(&other, part->places[i].hash);
        while (other.places[at].number != 0)
            at = after(&other, at);
        other.places[at] = part->places[i];
    }
    PyMem_Free(part->places);
    *part = other;
    return 1;
}

/* Have room for one more key; 0 for an error. */
static int
make_room(Part *part)
{
    if (part->used + 1 < part->size - part->size / FREE)
        return 1;
    uint64_t size = (uint64_t)part->size + part->size / GROWTH + SIZE_MIN;
    if (size > UINT32_MAX || !resize(part, (uint32_t)size)) {
        PyErr_NoMemory();
        return 0;
    }
    return 1;
}

/* The slot of a key, which is added in this one if it has none; -1 for an error. */
static Py_ssize_t
add(KeyIndex *self, uint32_t hash, PyObject *key, Py_ssize_t slot)
{
    uint32_t at = 0;
    Part *part = part_of(self, hash);
    if (!make_room(part))
        return -1;
    int found = search(self, part, hash, key, &at);
    if (found != 0)
        return found < 0 ? -1 : (Py_ssize_t)part->places[at].number - 1;
    if (slot < 0 || slot >= PyList_GET_SIZE(self->names) || (uint64_t)slot >= UINT32_MAX) {
        PyErr_Format(PyExc_IndexError, "%zd is no slot of a name", slot);
        return -1;
    }
    int named = is_named(self, (uint32_t)slot + 1, key);
    if (named == 0)
        PyErr_SetString(PyExc_ValueError, "a key is added before its name");
    if (named != 1)
        return -1;
    part->places[at] = (Place){hash, (uint32_t)slot + 1};
    part->used++;
    self->count++;
    return slot;
}

/* The hashes of some keys, whose places are fetched; 0 for an error. */
static int
hash_all(KeyIndex *self, PyObject *keys, Py_ssize_t start, Py_ssize_t count, uint32_t *hashes)
{
    for (Py_ssize_t i = 0; i < count; i++) {
        if (!hash_of(self, PySequence_Fast_GET_ITEM(keys, start + i), &hashes[i]))
            return 0;
        const Part *part = part_of(self, hashes[i]);
        if (part->size != 0)
            FETCH(&part->places[home(part, hashes[i])]);
    }
    return 1;
}

static PyObject *
add_all(KeyIndex *self, PyObject *const *args, Py_ssize_t given)
{
    uint32_t hashes[CHUNK];
    if (given != 2) {
        PyErr_SetString(PyExc_TypeError, "keys and slots are given");
        return NULL;
    }
    PyObject *keys = PySequence_Fast(args[0], "keys are a sequence"), *slots = NULL, *held = NULL;
    if (keys == NULL)
        return NULL;
    Py_ssize_t count = PySequence_Fast_GET_SIZE(keys);
    slots = PySequence_Fast(args[1], "slots are a sequence");
    if (slots == NULL || (held = PyList_New(count)) == NULL)
        goto failed;
    if (PySequence_Fast_GET_SIZE(keys) != count || PySequence_Fast_GET_SIZE(slots) != count) {
        PyErr_SetString(PyExc_ValueError, "there is not one slot for each key");
        goto failed;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        Py_ssize_t left = count - i;
        if (i % CHUNK == 0 && !hash_all(self, keys, i, left < CHUNK ? left : CHUNK, hashes))
            goto failed;
        PyObject *number = PySequence_Fast_GET_ITEM(slots, i);
        Py_ssize_t slot = PyLong_CheckExact(number) ? PyLong_AsSsize_t(number) : -1;
        if (slot == -1) {
            if (!PyErr_Occurred())
                PyErr_SetString(PyExc_TypeError, "a slot is an int from 0 on");
            goto failed;
        }
        slot = add(self, hashes[i % CHUNK], PySequence_Fast_GET_ITEM(keys, i), slot);
        PyObject *found = slot < 0 ? NULL : PyLong_FromSsize_t(slot);
        if (found == NULL)
            goto failed;
        PyList_SET_ITEM(held, i, found);
    }
    Py_DECREF(keys);
    Py_DECREF(slots);
    return held;
failed:
    Py_DECREF(keys);
    Py_XDECREF(slots);
    Py_XDECREF(held);
    return NULL;
}

/* The slot of a key; -1 where there is none, -2 for an error. */
static Py_ssize_t
slot_of(KeyIndex *self, uint32_t hash, PyObject *key)
{
    uint32_t at = 0;
    const Part *part = part_of(self, hash);
    int found = search(self, part, hash, key, &at);
    if (found <= 0)
        return found < 0 ? -2 : -1;
    return (Py_ssize_t)part->places[at].number - 1;
}

static PyObject *
find(KeyIndex *self, PyObject *key)
{
    uint32_t hash;
    if (!PyUnicode_Check(key))
        return PyLong_FromLong(-1); /* nothing else is a key */
    if (!hash_of(self, key, &hash))
        return NULL;
    Py_ssize_t slot = slot_of(self, hash, key);
    return slot == -2 ? NULL : PyLong_FromSsize_t(slot);
}

/* Request the names that the search for some keys reads, a stage for all of them at a time. */
static void
fetch(KeyIndex *self, const uint32_t *hashes, Py_ssize_t count)
{
    uint32_t numbers[CHUNK];
    PyObject **names = ((PyListObject *)self->names)->ob_item;
    Py_ssize_t size = PyList_GET_SIZE(self->names);
    for (Py_ssize_t i = 0; i < count; i++) {
        const Part *part = part_of(self, hashes[i]);
        numbers[i] = 0;
        if (part->size == 0)
            continue;
        uint32_t at = home(part, hashes[i]);
        while (part->places[at].number != 0 && part->places[at].hash != hashes[i])
            at = after(part, at);
        if ((Py_ssize_t)part->places[at].number <= size)
            numbers[i] = part->places[at].number;
        if (numbers[i] != 0)
            FETCH(&names[numbers[i] - 1]);
    }
    for (Py_ssize_t i = 0; i < count; i++)
        if (numbers[i] != 0)
            FETCH(names[numbers[i] - 1]);
}

static PyObject *
find_all(KeyIndex *self, PyObject *given)
{
    uint32_t hashes[CHUNK];
    PyObject *keys = PySequence_Fast(given, "keys are a sequence");
    if (keys == NULL)
        return NULL;
    Py_ssize_t count = PySequence_Fast_GET_SIZE(keys);
    PyObject *slots = PyList_New(count);
    if (slots == NULL)
        goto failed;
    if (PySequence_Fast_GET_SIZE(keys) != count) {
        PyErr_SetString(PyExc_RuntimeError, "a list changed while it was read");
        goto failed;
    }
    for (Py_ssize_t start = 0; start < count; start += CHUNK) {
        Py_ssize_t some = count - start < CHUNK ? count - start : CHUNK;
        if (!hash_all(self, keys, start, some, hashes))
            goto failed;
        fetch(self, hashes, some);
        for (Py_ssize_t i = 0; i < some; i++) {
            Py_ssize_t slot = slot_of(self, hashes[i], PySequence_Fast_GET_ITEM(keys, start + i));
            PyObject *found = slot < 0 ? Py_NewRef(Py_None) : PyLong_FromSsize_t(slot);
            if (slot == -2)
                Py_CLEAR(found);
            if (found == NULL)
                goto failed;
            PyList_SET_ITEM(slots, start + i, found);
        }
    }
    Py_DECREF(keys);
    return slots;
failed:
    Py_DECREF(keys);
    Py_XDECREF(slots);
    return NULL;
}

/* Free a place: those behind it move up that would not be found any more. */
static void
close_up(Part *part, uint32_t hole)
{
    uint32_t next = after(part, hole);
    for (; part->places[next].number != 0; next = after(part, next)) {
        uint32_t wanted = home(part, part->places[next].hash);
        if (distance(part, wanted, next) >= distance(part, hole, next)) {
            part->places[hole] = part->places[next];
            hole = next;
        }
    }
    part->places[hole] = (Place){0, 0};
}

static PyObject *
pop(KeyIndex *self, PyObject *key)
{
    uint32_t hash, at = 0;
    if (!PyUnicode_Check(key))
        return PyLong_FromLong(-1);
    if (!hash_of(self, key, &hash))
        return NULL;
    Part *part = part_of(self, hash);
    int found = search(self, part, hash, key, &at);
    if (found <= 0)
        return found < 0 ? NULL : PyLong_FromLong(-1);
    PyObject *slot = PyLong_FromSsize_t((Py_ssize_t)part->places[at].number - 1);
    if (slot == NULL)
        return NULL;
    close_up(part, at);
    part->used--;
    self->count--;
    if (part->size > 2 * SIZE_MIN && part->used < part->size / THIN)
        (void)resize(part, 2 * part->used + SIZE_MIN); /* without memory it stays as it is */
    return slot;
}

static PyObject *
slots_of(KeyIndex *self, PyObject *number)
{
    Py_ssize_t at = PyLong_AsSsize_t(number);
    if (at == -1 && PyErr_Occurred())
        return NULL;
    if (at < 0 || at >= PARTS)
        Py_RETURN_NONE; /* there are no more */
    PyObject *slots = PyList_New(0);
    if (slots == NULL)
        return NULL;
    const Part *part = &self->parts[at];
    for (uint32_t i = 0; i < part->size && part->used != 0; i++) {
        if (part->places[i].number == 0)
            continue;
        PyObject *slot = PyLong_FromSsize_t((Py_ssize_t)part->places[i].number - 1);
        int failed = slot == NULL || PyList_Append(slots, slot) < 0;
        Py_XDECREF(slot);
        if (failed) {
            Py_DECREF(slots);
            return NULL;
        }
    }
    return slots;
}

static Py_ssize_t
length(KeyIndex *self)
{
    return self->count;
}

static PyObject *
size_of(KeyIndex *self, PyObject *Py_UNUSED(none))
{
    size_t size = sizeof(KeyIndex);
    for (int i = 0; i < PARTS; i++)
        size += self->parts[i].size * sizeof(Place);
    return PyLong_FromSize_t(size);
}

static PyObject *
make(PyTypeObject *type, PyObject *args, PyObject *named)
{
    PyObject *names;
    unsigned int mask = UINT32_MAX;
    if (named != NULL && PyDict_GET_SIZE(named) != 0) {
        PyErr_SetString(PyExc_TypeError, "the names, and a mask, by their places");
        return NULL;
    }
    if (!PyArg_ParseTuple(args, "O!|I", &PyList_Type, &names, &mask))
        return NULL;
    KeyIndex *self = (KeyIndex *)type->tp_alloc(type, 0); /* all zeros */
    if (self == NULL)
        return NULL;
    self->names = Py_NewRef(names);
    self->mask = mask;
    return (PyObject *)self;
}

static void
end(KeyIndex *self)
{
    for (int i = 0; i < PARTS; i++)
        PyMem_Free(self->parts[i].places);
    Py_XDECREF(self->names);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyMethodDef methods[] = {
    {"find", (PyCFunction)(void (*)(void))find, METH_O, NULL},
    {"find_all", (PyCFunction)(void (*)(void))find_all, METH_O, NULL},
    {"add_all", (PyCFunction)(void (*)(void))add_all, METH_FASTCALL, NULL},
    {"pop", (PyCFunction)(void (*)(void))pop, METH_O, NULL},
    {"slots_of", (PyCFunction)(void (*)(void))slots_of, METH_O, NULL},
    {"__sizeof__", (PyCFunction)(void (*)(void))size_of, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PySequenceMethods as_sequence = {.sq_length = (lenfunc)length};

PyTypeObject key_index_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "sow.core._inner_loops.KeyIndex",
    .tp_basicsize = sizeof(KeyIndex),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = make,
    .tp_dealloc = (destructor)end,
    .tp_methods = methods,
    .tp_as_sequence = &as_sequence,
};
