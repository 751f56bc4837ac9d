#!/usr/bin/env python3
"""Writes a C++ file that holds the presets: embed_presets.py OUTPUT PRESET.json..."""

import pathlib
import sys

HEAD = """// Written by policy/embed_presets.py. Change policy/presets instead.
#include "policy/load.hpp"

namespace belljar::policy {
namespace {

struct Preset {
  std::string_view name;
  std::string_view text;
};

constexpr Preset kPresets[] = {
"""

TAIL = """};

}  // namespace

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const Preset& preset : kPresets) {
    if (preset.name != kOffPreset) names.emplace_back(preset.name);
  }
  return names;
}

std::string_view preset_text(std::string_view name) {
  for (const Preset& preset : kPresets) {
    if (preset.name == name) return preset.text;
  }
  return {};
}

}  // namespace belljar::policy
"""


def entry(path: pathlib.Path) -> str:
    text = path.read_text(encoding="utf-8")
    if ')belljar"' in text:
        sys.exit(f"{path}: holds the end of a raw string literal")
    return f'    {{"{path.stem}", R"belljar({text})belljar"}},\n'


def main() -> None:
    output = pathlib.Path(sys.argv[1])
    presets = sorted((pathlib.Path(name) for name in sys.argv[2:]), key=lambda path: path.stem)
    output.write_text(HEAD + "".join(map(entry, presets)) + TAIL, encoding="utf-8")


if __name__ == "__main__":
    main()
