// The daemon's log: lines on stderr, as text or as JSON. Never environment, output, code or tokens.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace belljar::api {

enum class Level { kInfo, kWarning, kError };
enum class LogFormat { kText, kJson };

/// What a line is about beside its message: "request", "session", "client", "status".
using Facts = std::vector<std::pair<std::string_view, std::string>>;

/// How lines are written from now on.
void set_log_format(LogFormat format);

/// One line. Control characters in it are escaped, and values are cut at 1 KiB.
void log(Level level, std::string_view message, const Facts& facts = {});

}  // namespace belljar::api
