#include <Python.h>

static PyObject* answer(PyObject* self, PyObject* arguments) {
  (void)self, (void)arguments;
  return PyLong_FromLong(42);
}

static PyMethodDef methods[] = {{"answer", answer, METH_NOARGS, "The answer."},
                                {NULL, NULL, 0, NULL}};
static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "answer", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_answer(void) { return PyModule_Create(&module); }
