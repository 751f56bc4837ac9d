// What stands where in a sandbox, read off its plan: the mount table before there is one.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "launcher/plan.hpp"
#include "policy/policy.hpp"

namespace belljar::launcher {

class View {
 public:
  /// Both outlive the view.
  View(const Plan& plan, const policy::Policy& policy);

  /// The step that decides what stands at `path`: the last that puts something at it or above it.
  [[nodiscard]] const Step& covering(std::string_view path) const;

  /// Whether a step puts something at this very path.
  [[nodiscard]] bool is_target(const std::string& path) const { return targets_.contains(path); }

  /// The same without the masks, which are no more than names where nothing is to be hidden.
  [[nodiscard]] const Step& covering_unmasked(std::string_view path) const;

  /// The masks at `path` or above it, in the order in which they are made.
  [[nodiscard]] std::vector<const Step*> masks_over(std::string_view path) const;

  /// Whether a step other than a mask puts something at or below `path`.
  [[nodiscard]] bool holds_a_target(std::string_view path) const;

  /// What the host calls the thing at `path` (without links): empty unless it comes from the host.
  [[nodiscard]] std::string on_host(const std::string& path) const;

  /// The same of what is there below the masks.
  [[nodiscard]] std::string on_host_unmasked(const std::string& path) const;

  /// `path` without links, as the sandbox's root would have them followed; nothing when there are
  /// too many.
  [[nodiscard]] std::optional<std::string> follow(const std::string& path) const;

  /// "agent.json:14:9 filesystem.root", or "by default filesystem.root".
  [[nodiscard]] std::string origin(const std::string& path) const;
  [[nodiscard]] std::string line(const Step& step) const;

 private:
  [[nodiscard]] const Step* covering(std::string_view path, bool masks) const;
  [[nodiscard]] static std::string on_host(const std::string& path, const Step& step);
  [[nodiscard]] std::optional<std::string> link_at(const std::string& path) const;

  const policy::Policy& policy_;
  std::vector<std::pair<std::string, const Step*>> placed_;  ///< In the order of the plan.
  std::unordered_set<std::string> targets_;
};

}  // namespace belljar::launcher
