#include "policy/reader.hpp"

#include "policy/quote.hpp"

namespace belljar::policy {

Location locate(const Sources& sources, const Place& place) {
  return {sources[static_cast<std::size_t>(place.source)].label, place.line, place.column};
}

bool Reader::error(const Place& place, std::string message) {
  if (findings_.size() < kMostFindings) findings_.push_back({place, path_, std::move(message)});
  return false;
}

bool Reader::expected(const Node& node, std::string_view what) {
  return error(node.place, "expected " + std::string(what) + ", got " + found_text(node));
}

void Reader::set_origin(const Place& place) {
  // Members come sorted, so that the end is nearly always the right place.
  if (merged()) origins_.emplace_hint(origins_.end(), path_, locate(sources_, place));
}

std::string Reader::text_of(const Place& place) const { return locate(sources_, place).text(); }

Reader::Scope::Scope(Reader& reader, std::string_view key, std::string_view example)
    : reader_(reader), length_(reader.path_.size()), example_(reader.example_) {
  append_member(reader.path_, key);
  reader.example_ = example;
}

Reader::Scope::Scope(Reader& reader, std::size_t index)
    : reader_(reader), length_(reader.path_.size()), example_(reader.example_) {
  reader.path_ += '[' + std::to_string(index) + ']';
  reader.example_ = {};
}

Reader::Scope::~Scope() {
  reader_.path_.resize(length_);
  reader_.example_ = example_;
}

}  // namespace belljar::policy
