#include "api/log.hpp"

#include <spdlog/sinks/ansicolor_sink.h>
#include <spdlog/spdlog.h>

#include <nlohmann/json.hpp>

namespace belljar::api {
namespace {

constexpr std::size_t kMostValue = 1024;

LogFormat& format() {
  static LogFormat kept = LogFormat::kText;
  return kept;
}

spdlog::logger& logger() {
  static const auto kLogger = [] {
    auto made = std::make_shared<spdlog::logger>(
        "belljard", std::make_shared<spdlog::sinks::ansicolor_stderr_sink_mt>());
    made->set_pattern("%Y-%m-%dT%H:%M:%S.%eZ %l %v", spdlog::pattern_time_type::utc);
    return made;
  }();
  return *kLogger;
}

std::string cut(std::string_view text) { return std::string(text.substr(0, kMostValue)); }

/// A JSON string; what is no UTF-8 is replaced.
std::string json_text(std::string_view text) {
  return nlohmann::json(cut(text)).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

std::string json_line(std::string_view message, const Facts& facts) {
  std::string line = "\"message\":" + json_text(message);
  for (const auto& [name, value] : facts) {
    line += ',' + json_text(name) + ':';
    line += json_text(value);
  }
  return line + '}';
}

/// A value as it is where it is one plain word, quoted otherwise.
std::string text_line(std::string_view message, const Facts& facts) {
  std::string line = cut(message);
  for (const char c : line)
    if (static_cast<unsigned char>(c) < ' ' || c == 0x7f) {
      line = json_text(message);
      break;
    }
  for (const auto& [name, value] : facts) {
    line += ' ' + std::string(name) + '=';
    const bool plain = !value.empty() && value.size() <= kMostValue &&
                       value.find_first_not_of(
                           "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
                           "-_./:@[]") == std::string::npos;
    line += plain ? value : json_text(value);
  }
  return line;
}

}  // namespace

void set_log_format(LogFormat wanted) {
  format() = wanted;
  logger().set_pattern(wanted == LogFormat::kJson
                           ? R"({"time":"%Y-%m-%dT%H:%M:%S.%eZ","level":"%l",%v)"
                           : "%Y-%m-%dT%H:%M:%S.%eZ %l %v",
                       spdlog::pattern_time_type::utc);
}

void log(Level level, std::string_view message, const Facts& facts) {
  const std::string line =
      format() == LogFormat::kJson ? json_line(message, facts) : text_line(message, facts);
  const auto severity = level == Level::kInfo      ? spdlog::level::info
                        : level == Level::kWarning ? spdlog::level::warn
                                                   : spdlog::level::err;
  logger().log(severity, "{}", line);
}

}  // namespace belljar::api
