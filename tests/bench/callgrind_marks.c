/* Client requests of callgrind as a module of Python: no symbol of the interpreter is needed, and without valgrind each
 * is a few instructions that do nothing.
 *
 *   instrument()   begin to simulate, after a start that nobody wants to wait for (--instr-atstart=no)
 *   collect()      count from here on, or no longer (--collect-atstart=no)
 *   dump(name)     write what was counted since the last dump, with the name in its header
 *   is_there()     whether this process runs under valgrind
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <valgrind/callgrind.h>

static PyObject *instrument(PyObject *module, PyObject *none) {
    CALLGRIND_START_INSTRUMENTATION;
    Py_RETURN_NONE;
}

static PyObject *collect(PyObject *module, PyObject *none) {
    CALLGRIND_TOGGLE_COLLECT;
    Py_RETURN_NONE;
}

static PyObject *dump(PyObject *module, PyObject *name) {
    const char *text = PyUnicode_AsUTF8(name);
    if (text == NULL)
        return NULL;
    CALLGRIND_DUMP_STATS_AT(text);
    Py_RETURN_NONE;
}

static PyObject *is_there(PyObject *module, PyObject *none) {
    return PyBool_FromLong(RUNNING_ON_VALGRIND);
}

static PyMethodDef methods[] = {
    {"instrument", instrument, METH_NOARGS, NULL},
    {"collect", collect, METH_NOARGS, NULL},
    {"dump", dump, METH_O, NULL},
    {"is_there", is_there, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "callgrind_marks", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_callgrind_marks(void) {
    return PyModule_Create(&module);
}
