from setuptools import Extension, setup

setup(name="answer", version="1.0", ext_modules=[Extension("answer", ["answer.c"])])
