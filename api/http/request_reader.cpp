#include "api/http/request_reader.hpp"

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

namespace belljar::api {

namespace http = boost::beast::http;

struct RequestReader::Parser {
  http::request_parser<http::string_body> http;
  /// Parameters of chunks mean nothing to us, and are read differently by others.
  std::function<void(std::uint64_t, boost::beast::string_view, boost::beast::error_code&)>
      on_chunk =
          [](std::uint64_t, boost::beast::string_view extensions, boost::beast::error_code& error) {
            if (!extensions.empty()) error = http::error::bad_chunk_extension;
          };

  Parser() {
    http.header_limit(kMostHead);
    http.body_limit(boost::none);  // Until `accept_body`, which can say so by a status of its own.
    http.eager(false);
    http.on_chunk_header(on_chunk);
  }
};

RequestReader::RequestReader() : parser_(std::make_unique<Parser>()) {}
RequestReader::~RequestReader() = default;

RequestReader::State RequestReader::refuse(Refusal refusal) {
  refusal_ = refusal;
  return state_ = State::kRefused;
}

RequestReader::State RequestReader::feed(std::string& buffer) {
  if (state_ == State::kHead) return feed_head(buffer);
  if (state_ == State::kBody) return feed_body(buffer);
  return state_;
}

RequestReader::State RequestReader::feed_head(std::string& buffer) {
  begun_ |= !buffer.empty();
  const std::size_t end = buffer.find("\r\n\r\n");
  const std::string head = buffer.substr(0, end == std::string::npos ? end : end + 4);
  if (end == std::string::npos) {
    if (auto refusal = check_partial_head(head)) return refuse(*refusal);
    return state_;
  }
  if (auto refusal = check_head(head)) return refuse(*refusal);
  boost::beast::error_code error;
  const std::size_t taken = parser_->http.put(boost::asio::buffer(head), error);
  // The library's own opinion of what the grammar above let through.
  if (error || taken != head.size() || !parser_->http.is_header_done())
    return refuse({400, "a broken request"});
  buffer.erase(0, head.size());
  take_head();
  return state_ == State::kRefused ? state_ : state_ = State::kDecide;
}

void RequestReader::take_head() {
  const auto& parsed = parser_->http.get();
  request_.method = std::string(parsed.method_string());
  for (const auto& field : parsed)
    request_.headers.add(
        std::string(field.name_string()),
        std::string(trim(std::string_view(field.value().data(), field.value().size()))));
  const auto target = parsed.target();
  if (!split_target(std::string_view(target.data(), target.size()), request_))
    refuse({400, "a broken target"});
  request_.keep_alive = parsed.keep_alive();
  const Headers& headers = request_.headers;
  request_.upgrade = request_.method == "GET" &&
                     lists_word(headers.find("upgrade").value_or(""), "websocket") &&
                     lists_word(headers.find("connection").value_or(""), "upgrade") &&
                     headers.find("sec-websocket-version") == "13" &&
                     headers.find("sec-websocket-key").value_or("").size() == 24 && !has_body();
}

bool RequestReader::has_body() const {
  return parser_->http.chunked() || parser_->http.content_length().value_or(0) > 0;
}

std::optional<std::size_t> RequestReader::body_size() const {
  const auto length = parser_->http.content_length();
  if (!length) return std::nullopt;
  return static_cast<std::size_t>(*length);
}

bool RequestReader::expects_continue() const {
  return has_body() && request_.headers.count("expect") > 0;
}

RequestReader::State RequestReader::accept_body(std::size_t limit) {
  if (state_ != State::kDecide) return state_;
  if (!has_body()) return state_ = State::kDone;
  if (parser_->http.content_length().value_or(0) > limit)
    return refuse({413, "the body is too large"});
  parser_->http.body_limit(limit);
  parser_->http.eager(true);
  return state_ = State::kBody;
}

std::string RequestReader::take_body() {
  return state_ == State::kDone ? std::exchange(request_.body, {})
                                : std::exchange(parser_->http.get().body(), {});
}

RequestReader::State RequestReader::feed_body(std::string& buffer) {
  while (!buffer.empty()) {
    boost::beast::error_code error;
    const std::size_t taken = parser_->http.put(boost::asio::buffer(buffer), error);
    buffer.erase(0, taken);
    if (error == http::error::need_more || (!error && taken == 0 && !parser_->http.is_done())) {
      // What cannot be the line of a chunk's length any more is not waited for.
      if (parser_->http.chunked() && taken == 0 && buffer.size() > kMostHead)
        return refuse({400, "a broken body"});
      return state_;
    }
    if (error == http::error::body_limit) return refuse({413, "the body is too large"});
    if (error) return refuse({400, "a broken body"});
    if (!parser_->http.is_done()) continue;
    request_.body = take_body();
    return state_ = State::kDone;
  }
  return state_;
}

}  // namespace belljar::api
