#include "policy/merge.hpp"

#include <iterator>
#include <utility>

namespace belljar::policy {
namespace {

/// Takes the nulls out of an object that replaces nothing: there is nothing for them to remove.
Node without_nulls(Node node) {
  if (node.kind != Node::Kind::kObject) return node;
  std::erase_if(node.members,
                [](const Member& member) { return member.value.kind == Node::Kind::kNull; });
  for (Member& member : node.members) member.value = without_nulls(std::move(member.value));
  return node;
}

void append_upper(std::vector<Member>& out, Member member) {
  if (member.value.kind == Node::Kind::kNull) return;
  member.value = without_nulls(std::move(member.value));
  out.push_back(std::move(member));
}

void append_both(std::vector<Member>& out, Member lower, Member upper) {
  const bool objects =
      lower.value.kind == Node::Kind::kObject && upper.value.kind == Node::Kind::kObject;
  if (!objects) return append_upper(out, std::move(upper));
  merge(lower.value, std::move(upper.value));
  out.push_back(std::move(lower));
}

}  // namespace

void merge(Node& lower, Node upper) {
  std::vector<Member> out;
  out.reserve(lower.members.size() + upper.members.size());
  auto below = lower.members.begin();
  for (Member& member : upper.members) {
    for (; below != lower.members.end() && below->key < member.key; ++below) {
      out.push_back(std::move(*below));
    }
    if (below != lower.members.end() && below->key == member.key) {
      append_both(out, std::move(*below), std::move(member));
      ++below;
    } else {
      append_upper(out, std::move(member));
    }
  }
  std::move(below, lower.members.end(), std::back_inserter(out));
  lower.members = std::move(out);
}

}  // namespace belljar::policy
