"""The packages of the wheel freshet-gnn, from the folders that pyproject.toml names in `package-dir`.

The links in freshet/ are not read: a ZIP of the repository has them as text files. A folder that is missing ends the
build.
"""

import tomllib
from pathlib import Path

from setuptools import find_packages, setup

read = tomllib.loads(Path(__file__).with_name("pyproject.toml").read_text())
packages = set()
for package, folder in read["tool"]["setuptools"]["package-dir"].items():
    packages |= {package, *(f"{package}.{inner}" for inner in find_packages(folder))}
setup(packages=sorted(packages))
