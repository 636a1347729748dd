/* The loops of inner_loops.py in C. That module says what each is for, and has the same in Python.

No Python code runs while a loop holds borrowed references or a place in a list. Every slot and code
is compared with the length of its column before it is used: a wrong one is an IndexError. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <limits.h>
#include <stdint.h>
#include <string.h>

#if defined(__GNUC__)
#define FETCH(address) __builtin_prefetch(address, 1)
#else
#define FETCH(address) ((void)(address))
#endif

#define NONE (-1)
#define AHEAD 8 /* Records that are fetched before their turn: a wait for memory is a few turns. */
#define INTERFACE 4 /* As in inner_loops.py: what was built of an older source is not used. */

typedef struct {
    Py_buffer view;
    int *at;
    Py_ssize_t count;
} Column;

static int
open_column(PyObject *array, Column *column)
{
    if (PyObject_GetBuffer(array, &column->view, PyBUF_WRITABLE | PyBUF_FORMAT) < 0)
        return -1;
    const char *format = column->view.format;
    if (column->view.itemsize != sizeof(int) || format == NULL || strcmp(format, "i") != 0) {
        PyBuffer_Release(&column->view);
        PyErr_SetString(PyExc_TypeError, "a column is an array of the type 'i'");
        return -1;
    }
    column->at = column->view.buf;
    column->count = column->view.len / (Py_ssize_t)sizeof(int);
    return 0;
}

static int
is_in(Py_ssize_t place, Py_ssize_t count)
{
    if (place >= 0 && place < count)
        return 1;
    PyErr_Format(PyExc_IndexError, "%zd is no place among %zd", place, count);
    return 0;
}

static int
has_arguments(Py_ssize_t given, Py_ssize_t wanted)
{
    if (given == wanted)
        return 1;
    PyErr_Format(PyExc_TypeError, "%zd arguments, not %zd", given, wanted);
    return 0;
}

/* The numbers of a sequence, each a place among `size`; to be freed by PyMem_Free. */
static Py_ssize_t *
places_of(PyObject *numbers, Py_ssize_t size, Py_ssize_t *count)
{
    PyObject *fast = PySequence_Fast(numbers, "slots are a sequence");
    if (fast == NULL)
        return NULL;
    *count = PySequence_Fast_GET_SIZE(fast);
    Py_ssize_t *places = PyMem_New(Py_ssize_t, *count ? *count : 1);
    if (places == NULL)
        PyErr_NoMemory();
    for (Py_ssize_t i = 0; places != NULL && i < *count; i++) {
        PyObject *number = PySequence_Fast_GET_ITEM(fast, i);
        if (!PyLong_CheckExact(number))
            PyErr_SetString(PyExc_TypeError, "a slot is an int");
        else
            places[i] = PyLong_AsSsize_t(number);
        if (PyErr_Occurred() || !is_in(places[i], size)) {
            PyMem_Free(places);
            places = NULL;
        }
    }
    Py_DECREF(fast);
    return places;
}

static PyObject *
swap(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t given)
{
    if (!has_arguments(given, 3))
        return NULL;
    PyObject *held = args[0], *values = NULL, *olds = NULL;
    if (!PyList_Check(held)) {
        PyErr_SetString(PyExc_TypeError, "what is held is in a list");
        return NULL;
    }
    Py_ssize_t count, size = PyList_GET_SIZE(held);
    Py_ssize_t *places = places_of(args[1], size, &count);
    if (places == NULL)
        return NULL;
    values = PySequence_Fast(args[2], "values are a sequence");
    if (values == NULL)
        goto end;
    if (PySequence_Fast_GET_SIZE(values) != count) {
        PyErr_SetString(PyExc_ValueError, "there is not one value for each slot");
        goto end;
    }
    olds = PyList_New(count);
    if (olds == NULL)
        goto end;
    if (PyList_GET_SIZE(held) != size || PySequence_Fast_GET_SIZE(values) != count) {
        Py_CLEAR(olds);
        PyErr_SetString(PyExc_RuntimeError, "a list changed while slots and values were read");
        goto end;
    }
    PyObject **items = ((PyListObject *)held)->ob_item;
    for (Py_ssize_t i = 0; i < count; i++)
        FETCH(&items[places[i]]);
    for (Py_ssize_t i = 0; i < count; i++)
        FETCH(items[places[i]]);
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *value = PySequence_Fast_GET_ITEM(values, i);
        Py_INCREF(value);
        PyList_SET_ITEM(olds, i, items[places[i]]); /* its reference moves */
        items[places[i]] = value;
    }
end:
    Py_XDECREF(values);
    PyMem_Free(places);
    return olds;
}

/* Read the numbers of a sequence, `count` of them; 0 for an error. */
static int
read_numbers(PyObject *numbers, int64_t *into, Py_ssize_t count)
{
    PyObject *fast = PySequence_Fast(numbers, "numbers are a sequence");
    if (fast == NULL)
        return 0;
    if (PySequence_Fast_GET_SIZE(fast) != count)
        PyErr_SetString(PyExc_ValueError, "there is not one number for each slot");
    for (Py_ssize_t i = 0; i < count && !PyErr_Occurred(); i++) {
        PyObject *number = PySequence_Fast_GET_ITEM(fast, i);
        if (!PyLong_CheckExact(number))
            PyErr_SetString(PyExc_TypeError, "a number is an int");
        else
            into[i] = PyLong_AsLongLong(number);
    }
    Py_DECREF(fast);
    return PyErr_Occurred() == NULL;
}

static PyObject *
stamp(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t given)
{
    if (!has_arguments(given, 4))
        return NULL;
    Py_buffer block;
    Py_ssize_t *places = NULL, count;
    int64_t *seqs = NULL;
    int done = 0;
    if (PyObject_GetBuffer(args[0], &block, PyBUF_WRITABLE | PyBUF_FORMAT | PyBUF_ND) < 0)
        return NULL;
    if (block.ndim != 2 || block.shape[0] < 2 || block.itemsize != sizeof(int64_t) ||
        block.format == NULL || (strcmp(block.format, "l") != 0 && strcmp(block.format, "q") != 0)) {
        PyErr_SetString(PyExc_TypeError, "a block has rows of 64-bit numbers, two at least");
        goto end;
    }
    Py_ssize_t size = block.shape[1];
    if ((places = places_of(args[1], size, &count)) == NULL)
        goto end;
    if ((seqs = PyMem_New(int64_t, count ? 2 * count : 1)) == NULL) {
        PyErr_NoMemory();
        goto end;
    }
    int64_t *ts_us = seqs + count, *at = block.buf;
    if (!read_numbers(args[2], seqs, count) || !read_numbers(args[3], ts_us, count))
        goto end;
    for (Py_ssize_t i = 0; i < count; i++) {
        at[places[i]] = seqs[i];
        at[size + places[i]] = ts_us[i];
    }
    done = 1;
end:
    PyMem_Free(seqs);
    PyMem_Free(places);
    PyBuffer_Release(&block);
    if (!done)
        return NULL;
    Py_RETURN_NONE;
}

/* The code of a value; INT_MIN, which is no code, for an error. */
static int
code_of(PyObject *codes, PyObject *value, PyObject *find)
{
    PyObject *found = PyDict_GetItemWithError(codes, value);
    if (found != NULL)
        Py_INCREF(found);
    else {
        if (PyErr_Occurred()) {
            if (!PyErr_ExceptionMatches(PyExc_TypeError))
                return INT_MIN;
            PyErr_Clear(); /* a list has no hash */
        }
        found = PyObject_CallOneArg(find, value);
        if (found == NULL)
            return INT_MIN;
    }
    long code = PyLong_AsLong(found);
    Py_DECREF(found);
    if (code == -1 && PyErr_Occurred())
        return INT_MIN;
    if (code < NONE || code > INT_MAX) {
        PyErr_SetString(PyExc_OverflowError, "a code is a small number");
        return INT_MIN;
    }
    return (int)code;
}

/* Append to an array of the type 'i', also where an error is on its way. */
static int
append(PyObject *array, const int *numbers, Py_ssize_t count)
{
    PyObject *kind, *error, *trace;
    PyErr_Fetch(&kind, &error, &trace);
    PyObject *done = PyObject_CallMethod(
        array, "frombytes", "y#", (const char *)numbers, count * (Py_ssize_t)sizeof(int));
    Py_XDECREF(done);
    if (kind != NULL)
        PyErr_Restore(kind, error, trace);
    return done == NULL ? -1 : 0;
}

static PyObject *
stand(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t given)
{
    if (!has_arguments(given, 6))
        return NULL;
    PyObject *codes = args[0], *iterator = NULL;
    Py_ssize_t *places = NULL, count, moved = 0;
    int *notes = NULL, failed = 1;
    Column standing;
    if (!PyDict_Check(codes)) {
        PyErr_SetString(PyExc_TypeError, "codes are in a dictionary");
        return NULL;
    }
    if (open_column(args[3], &standing) < 0)
        return NULL;
    if ((places = places_of(args[2], standing.count, &count)) == NULL)
        goto end;
    if ((notes = PyMem_New(int, count ? count : 1)) == NULL) {
        PyErr_NoMemory();
        goto end;
    }
    if ((iterator = PyObject_GetIter(args[1])) == NULL)
        goto end;
    for (Py_ssize_t i = 0; i < count; i++)
        FETCH(&standing.at[places[i]]);
    for (Py_ssize_t i = 0; i <= count; i++) {
        PyObject *value = PyIter_Next(iterator);
        if ((value == NULL) != (i == count) && !PyErr_Occurred())
            PyErr_SetString(PyExc_ValueError, "there is not one value for each slot");
        int code = value == NULL || i == count ? INT_MIN : code_of(codes, value, args[5]);
        Py_XDECREF(value);
        if (code == INT_MIN)
            break;
        if (standing.at[places[i]] != code) {
            standing.at[places[i]] = code;
            notes[moved++] = (int)places[i];
        }
    }
    failed = append(args[4], notes, moved) < 0 || PyErr_Occurred() != NULL;
end:
    Py_XDECREF(iterator);
    PyMem_Free(notes);
    PyMem_Free(places);
    PyBuffer_Release(&standing.view);
    if (failed)
        return NULL;
    Py_RETURN_NONE;
}

enum { SLOTS, STANDING, FILED, HEADS, SIZES, FOLLOWING, PREVIOUS, COLUMNS };

/* Take a slot out of the chain of `code`; 0 for an error. */
static int
unlink_slot(Column *of, int slot, int code)
{
    int before = of[PREVIOUS].at[slot], after = of[FOLLOWING].at[slot];
    if (!is_in(code, of[HEADS].count) || (before != NONE && !is_in(before, of[FOLLOWING].count)) ||
        (after != NONE && !is_in(after, of[PREVIOUS].count)))
        return 0;
    *(before == NONE ? &of[HEADS].at[code] : &of[FOLLOWING].at[before]) = after;
    if (after != NONE)
        of[PREVIOUS].at[after] = before;
    of[SIZES].at[code]--;
    return 1;
}

/* Put a slot at the beginning of the chain of `code`; 0 for an error. */
static int
link_slot(Column *of, int slot, int code)
{
    if (!is_in(code, of[HEADS].count))
        return 0;
    int head = of[HEADS].at[code];
    if (head != NONE && !is_in(head, of[PREVIOUS].count))
        return 0;
    of[PREVIOUS].at[slot] = NONE;
    of[FOLLOWING].at[slot] = head;
    if (head != NONE)
        of[PREVIOUS].at[head] = slot;
    of[HEADS].at[code] = slot;
    of[SIZES].at[code]++;
    return 1;
}

static int
move_all(Column *of)
{
    Py_ssize_t count = of[SLOTS].count, size = of[STANDING].count;
    if (of[FILED].count != size || of[FOLLOWING].count != size || of[PREVIOUS].count != size ||
        of[HEADS].count != of[SIZES].count) {
        PyErr_SetString(PyExc_ValueError, "columns of one index have different lengths");
        return 0;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        if (i + AHEAD < count) {
            int next = of[SLOTS].at[i + AHEAD];
            if (!is_in(next, size))
                return 0;
            for (int column = STANDING; column < COLUMNS; column++)
                if (column != HEADS && column != SIZES)
                    FETCH(&of[column].at[next]);
        }
        int slot = of[SLOTS].at[i];
        if (!is_in(slot, size))
            return 0;
        int old = of[FILED].at[slot], new = of[STANDING].at[slot];
        if (old == new)
            continue;
        if (old != NONE && !unlink_slot(of, slot, old))
            return 0;
        of[FILED].at[slot] = NONE;
        if (new != NONE && !link_slot(of, slot, new))
            return 0;
        of[FILED].at[slot] = new;
    }
    return 1;
}

static PyObject *
relink(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t given)
{
    if (!has_arguments(given, COLUMNS))
        return NULL;
    Column columns[COLUMNS];
    int opened = 0;
    while (opened < COLUMNS && open_column(args[opened], &columns[opened]) == 0)
        opened++;
    int done = opened == COLUMNS && move_all(columns);
    while (opened-- > 0)
        PyBuffer_Release(&columns[opened].view);
    if (!done)
        return NULL;
    Py_RETURN_NONE;
}

#define TEXT 0x81      /* a frame that is a message by itself */
#define BINARY 0x82
#define MASKED 0x80
#define TWO_BYTES 126  /* of length follow; for a larger number, eight */
#define MASK_BYTES 4

static PyObject *
unmasked(const unsigned char *payload, Py_ssize_t size, const unsigned char *mask)
{
    PyObject *made = PyBytes_FromStringAndSize(NULL, size);
    if (made == NULL)
        return NULL;
    unsigned char *into = (unsigned char *)PyBytes_AS_STRING(made);
    uint64_t key;
    memcpy(&key, mask, MASK_BYTES);
    memcpy((unsigned char *)&key + MASK_BYTES, mask, MASK_BYTES);
    Py_ssize_t at = 0;
    for (; at + (Py_ssize_t)sizeof(key) <= size; at += sizeof(key)) {
        uint64_t eight;
        memcpy(&eight, payload + at, sizeof(key));
        eight ^= key;
        memcpy(into + at, &eight, sizeof(key));
    }
    for (; at < size; at++)
        into[at] = payload[at] ^ mask[at % MASK_BYTES];
    return made;
}

static int
is_ascii(PyObject *bytes)
{
    const char *at = PyBytes_AS_STRING(bytes), *end = at + PyBytes_GET_SIZE(bytes);
    while (at < end && !(*at & 0x80))
        at++;
    return at == end;
}

/* Read the head of a frame of which `left` bytes are there. Returns how many bytes come before its
payload, whose length is set; 0 where it is no short frame, -1 where it is cut off. */
static int
read_head(const unsigned char *frame, Py_ssize_t left, Py_ssize_t bytes_max, Py_ssize_t *length)
{
    if (frame[0] != TEXT && frame[0] != BINARY)
        return 0;
    if (left < 2)
        return -1;
    int head = 2 + MASK_BYTES, announced = frame[1] ^ MASKED;
    if (announced > TWO_BYTES)
        return 0;
    *length = announced;
    if (announced == TWO_BYTES) {
        if (left < 4)
            return -1;
        *length = (frame[2] << 8) | frame[3];
        head += 2;
    }
    if (*length > bytes_max)
        return 0;
    return left - head < *length ? -1 : head;
}

static PyObject *
frames(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t given)
{
    if (!has_arguments(given, 3))
        return NULL;
    if (!PyBytes_Check(args[0])) {
        PyErr_SetString(PyExc_TypeError, "frames are in bytes");
        return NULL;
    }
    Py_ssize_t bytes_max = PyLong_AsSsize_t(args[1]), count_max = PyLong_AsSsize_t(args[2]);
    if (PyErr_Occurred())
        return NULL;
    const unsigned char *data = (const unsigned char *)PyBytes_AS_STRING(args[0]);
    Py_ssize_t at = 0, size = PyBytes_GET_SIZE(args[0]), length = 0;
    PyObject *found = PyList_New(0);
    if (found == NULL)
        return NULL;
    int head = 0;
    while (at < size && PyList_GET_SIZE(found) < count_max) {
        head = read_head(data + at, size - at, bytes_max, &length);
        if (head <= 0)
            break;
        const unsigned char *payload = data + at + head;
        PyObject *message = unmasked(payload, length, payload - MASK_BYTES);
        if (message != NULL && data[at] == TEXT && !is_ascii(message)) {
            Py_DECREF(message);
            break;
        }
        if (message == NULL || PyList_Append(found, message) < 0) {
            Py_XDECREF(message);
            Py_DECREF(found);
            return NULL;
        }
        Py_DECREF(message);
        at += head + length;
    }
    return Py_BuildValue("NnO", found, at, head < 0 ? Py_True : Py_False);
}

static PyMethodDef methods[] = {
    {"frames", (PyCFunction)(void (*)(void))frames, METH_FASTCALL, NULL},
    {"swap", (PyCFunction)(void (*)(void))swap, METH_FASTCALL, NULL},
    {"stamp", (PyCFunction)(void (*)(void))stamp, METH_FASTCALL, NULL},
    {"stand", (PyCFunction)(void (*)(void))stand, METH_FASTCALL, NULL},
    {"relink", (PyCFunction)(void (*)(void))relink, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, .m_name = "_inner_loops", .m_size = -1, .m_methods = methods};

extern PyTypeObject key_index_type; /* _key_index.c */

PyMODINIT_FUNC
PyInit__inner_loops(void)
{
    PyObject *made = PyModule_Create(&module);
    if (made != NULL && (PyModule_AddIntConstant(made, "INTERFACE", INTERFACE) < 0 ||
                         PyModule_AddType(made, &key_index_type) < 0)) {
        Py_DECREF(made);
        return NULL;
    }
    return made;
}
