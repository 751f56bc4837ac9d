#include "api/http/response_reader.hpp"

#include <algorithm>
#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

namespace belljar::api {

namespace http = boost::beast::http;

namespace {

constexpr int kMostInterim = 8;

constexpr std::array<std::string_view, 11> kHopByHop = {"connection",
                                                        "keep-alive",
                                                        "proxy-authenticate",
                                                        "proxy-authorization",
                                                        "proxy-connection",
                                                        "te",
                                                        "trailer",
                                                        "upgrade",
                                                        "transfer-encoding",
                                                        "expect",
                                                        "content-length"};

}  // namespace

struct ResponseReader::Parser {
  http::response_parser<http::string_body> http;
  explicit Parser(bool head_only) {
    http.header_limit(kMostHead);
    http.body_limit(boost::none);
    http.skip(head_only);
  }
};

ResponseReader::ResponseReader(Of method)
    : method_(method), parser_(std::make_unique<Parser>(method == Of::kHead)) {}
ResponseReader::~ResponseReader() = default;

ResponseReader::State ResponseReader::broken(std::string_view why) {
  why_ = why;
  return state_ = State::kBroken;
}

ResponseReader::State ResponseReader::feed(std::string& buffer) {
  if (state_ == State::kHead) feed_head(buffer);
  if (state_ == State::kBody) feed_body(buffer);
  return state_;
}

ResponseReader::State ResponseReader::feed_head(std::string& buffer) {
  while (state_ == State::kHead) {
    const std::size_t end = buffer.find("\r\n\r\n");
    const std::string head = buffer.substr(0, end == std::string::npos ? end : end + 4);
    if (end == std::string::npos) {
      if (const auto refusal = check_partial_head(head)) return broken(refusal->why);
      return state_;
    }
    if (const auto refusal = check_response_head(head)) return broken(refusal->why);
    boost::beast::error_code error;
    parser_->http.eager(false);
    const std::size_t taken = parser_->http.put(boost::asio::buffer(head), error);
    if (error || taken != head.size() || !parser_->http.is_header_done())
      return broken("a broken answer");
    buffer.erase(0, head.size());
    take_head();
  }
  return state_;
}

void ResponseReader::take_head() {
  const auto& parsed = parser_->http.get();
  const auto status = static_cast<int>(parsed.result_int());
  if (status < 200 && status != 101) {
    if (++interim_ > kMostInterim) broken("too many interim answers");
    parser_ = std::make_unique<Parser>(method_ == Of::kHead);
    return;
  }
  Headers headers;
  for (const auto& field : parsed)
    headers.add(std::string(field.name_string()),
                std::string(trim(std::string_view(field.value().data(), field.value().size()))));
  head_.status = status;
  head_.content_type.clear();  // It is among the others.
  head_.headers = status == 101 ? headers : end_to_end(headers);
  // Of an answer to HEAD and of one that is cut by its status, the library knows no length.
  if (const auto length = headers.find("content-length"))
    length_ = std::stoull(std::string(*length));
  if (status == 204 || status == 304) length_ = 0;
  parser_->http.eager(true);
  state_ = parser_->http.is_done() || status == 101 || method_ == Of::kHead ? State::kDone
                                                                            : State::kBody;
}

std::string ResponseReader::take_body() { return std::exchange(parser_->http.get().body(), {}); }

ResponseReader::State ResponseReader::feed_body(std::string& buffer) {
  while (!buffer.empty()) {
    boost::beast::error_code error;
    const std::size_t taken = parser_->http.put(boost::asio::buffer(buffer), error);
    buffer.erase(0, taken);
    if (error == http::error::need_more || (!error && taken == 0)) {
      if (parser_->http.chunked() && taken == 0 && buffer.size() > kMostHead)
        return broken("a broken body");
      break;
    }
    if (error) return broken("a broken body");
    if (parser_->http.is_done()) break;
  }
  return state_ = parser_->http.is_done() ? State::kDone : State::kBody;
}

ResponseReader::State ResponseReader::end() {
  if (state_ == State::kDone || state_ == State::kBroken) return state_;
  if (state_ == State::kHead) return broken("no answer");
  boost::beast::error_code error;
  parser_->http.put_eof(error);
  if (error) return broken("an answer that was cut short");
  return state_ = State::kDone;
}

Headers end_to_end(const Headers& headers) {
  std::string listed;
  for (const auto& [name, value] : headers.all())
    if (same_name(name, "connection")) listed += value + ',';
  Headers kept;
  for (const auto& [name, value] : headers.all()) {
    const std::string_view field = name;
    const bool hop = std::any_of(kHopByHop.begin(), kHopByHop.end(),
                                 [field](std::string_view one) { return same_name(one, field); });
    if (!hop && !lists_word(listed, name)) kept.add(name, value);
  }
  return kept;
}

}  // namespace belljar::api
