#!/usr/bin/env python3
"""Writes a C++ file that holds the OpenAPI document, without its blanks: embed_openapi.py OUTPUT DOCUMENT"""

import json
import pathlib
import sys

# A string literal is 64 KiB at most where nobody promises more.
PIECE = 8192

document = json.loads(pathlib.Path(sys.argv[2]).read_text(encoding="utf-8"))
text = json.dumps(document, separators=(",", ":"), ensure_ascii=True)
if ')belljar"' in text:
    sys.exit(f"{sys.argv[2]}: holds the end of a raw string literal")
pieces = "\n".join(f'    R"belljar({text[at:at + PIECE]})belljar"' for at in range(0, len(text), PIECE))
pathlib.Path(sys.argv[1]).write_text(f"""// Written by api/v1/embed_openapi.py. Change api/v1/openapi.json instead.
#include "api/v1/openapi.hpp"

namespace belljar::api {{

std::string_view openapi_document() {{
  static constexpr std::string_view kDocument =
{pieces};
  return kDocument;
}}

}}  // namespace belljar::api
""", encoding="utf-8")
