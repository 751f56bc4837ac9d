#include "api/ctl/follow.hpp"

#include <algorithm>

#include "policy/base64.hpp"

namespace belljar::ctl {
namespace {

constexpr std::size_t kLongestLine = std::size_t{4} << 20;

std::optional<Stream> stream_of(const Json& line) {
  const std::string name = text_of(line, "stream");
  if (name == "stdout") return Stream::kOut;
  if (name == "stderr") return Stream::kErr;
  return std::nullopt;
}

std::optional<std::string> bytes_of(const Json& line) {
  const Json& text = member_of(line, "text");
  const Json& encoded = member_of(line, "base64");
  if (text.is_string()) return text.get<std::string>();
  if (encoded.is_string()) return policy::decode_base64(encoded.get<std::string>());
  return std::nullopt;
}

std::string output_target(const Following& wanted, Offsets at) {
  std::string target = process_path(wanted.session, wanted.process) + "/output";
  target += wanted.follow ? "?follow=true" : "?follow=false";
  if (wanted.only) target += "&stream=" + std::string(stream_name(*wanted.only));
  if (wanted.only != Stream::kErr) target += "&stdout=" + std::to_string(at.out);
  if (wanted.only != Stream::kOut) target += "&stderr=" + std::to_string(at.err);
  return target;
}

/// One connection's worth.
Done read_output(const Client& client, const Following& wanted, OutputLines& lines, bool& stopped) {
  Call call("GET", output_target(wanted, lines.at()));
  call.headers.emplace_back("Accept", "application/x-ndjson");
  call.silence = std::chrono::seconds(60);  // Four heartbeats.
  call.watches = wanted.watches;
  LineReader reader;
  bool whole = true;
  call.sink = [&](std::string_view bytes) {
    whole = reader.feed(
        bytes, [&](std::string_view line) { return lines.take(line); }, stopped);
    return whole && !stopped;
  };
  const Outcome<Answer> answer = client.call(call);
  if (!answer) return tl::unexpected(answer.error());
  if (!whole) return failed(FailureKind::kLocal, "the daemon sends a line without an end");
  if (!lines.broken().empty())
    return failed(FailureKind::kLocal, "the daemon's stream of output: " + lines.broken());
  stopped |= answer->stopped;
  return {};
}

}  // namespace

std::string_view stream_name(Stream stream) { return stream == Stream::kOut ? "stdout" : "stderr"; }

bool LineReader::feed(std::string_view bytes, const std::function<bool(std::string_view)>& line,
                      bool& stopped) {
  while (!bytes.empty()) {
    const std::size_t end = bytes.find('\n');
    if (begun_.size() + std::min(end, bytes.size()) > kLongestLine) return false;
    begun_ += bytes.substr(0, end);
    if (end == std::string_view::npos) return true;
    bytes.remove_prefix(end + 1);
    const std::string whole = std::exchange(begun_, {});
    if (whole.empty() || line(whole)) continue;
    stopped = true;
    return true;
  }
  return true;
}

bool OutputLines::wrong(std::string why) {
  broken_ = std::move(why);
  return false;
}

bool OutputLines::take(std::string_view text) {
  const Json line = Json::parse(text, nullptr, false);
  const std::string type = text_of(line, "type");
  if (!line.is_object()) return wrong("a line is no object");
  if (record_) return wrong("there is more after the end");
  if (type == "output") return take_output(line);
  if (type == "gap") return take_gap(line);
  if (type == "end") {
    record_ = member_of(line, "record");
    if (!record_->is_object()) record_ = line;
  }
  return true;  // Heartbeats, and what later daemons may add.
}

bool OutputLines::take_output(const Json& line) {
  const auto stream = stream_of(line);
  const auto bytes = bytes_of(line);
  if (!stream || !bytes) return wrong("a line of output has no stream, or no bytes");
  const std::uint64_t offset = number_of(line, "offset");
  std::uint64_t& at = this->at(*stream);
  if (offset > at) {
    taker_.gap(*stream, at, offset);
    at = offset;
  }
  if (offset + bytes->size() <= at) return true;  // All of it has been written before.
  const std::string_view fresh = std::string_view(*bytes).substr(at - offset);
  at += fresh.size();
  return taker_.bytes(*stream, fresh);
}

bool OutputLines::take_gap(const Json& line) {
  const auto stream = stream_of(line);
  if (!stream) return wrong("a gap has no stream");
  std::uint64_t& at = this->at(*stream);
  const std::uint64_t to = number_of(line, "to");
  if (to <= at) return true;
  taker_.gap(*stream, std::max(at, number_of(line, "from")), to);
  at = to;
  return true;
}

void say_gap(Stream stream, std::uint64_t from, std::uint64_t to) {
  say(std::string(stream_name(stream)) + ": " + std::to_string(to - from) + " bytes from offset " +
      std::to_string(from) +
      " on are missing: they came faster, or longer ago, than the daemon keeps");
}

Outcome<std::optional<Json>> follow_output(const Client& client, const Following& wanted) {
  OutputLines lines(wanted.from, wanted.taker);
  Patience patience;
  for (bool told = false, reached = false;;) {
    const Offsets before = lines.at();
    bool stopped = false;
    Done read = read_output(client, wanted, lines, stopped);
    if (lines.record()) return lines.record();
    if (!read && read.error().kind == FailureKind::kLocal) return tl::unexpected(read.error());
    if (stopped || (read && !wanted.follow)) return std::optional<Json>();
    // A stream that ends without an end was cut, whatever HTTP says about it.
    if (read) read = failed(FailureKind::kBroken, "the stream ended without an end");
    if (lines.at().out != before.out || lines.at().err != before.err) patience.settle();
    // Nobody was there from the beginning: that will not change by itself.
    if (!reached && read.error().kind != FailureKind::kBroken) return tl::unexpected(read.error());
    reached = true;
    if (!patience.again(read.error())) return tl::unexpected(read.error());
    if (!std::exchange(told, true))
      say("the connection broke (" + read.error().what + "); going on from where it was");
  }
}

}  // namespace belljar::ctl
