#include "launcher/own_mounts.hpp"

#include <cerrno>

#include "launcher/sys/directory.hpp"
#include "launcher/sys/kernel.hpp"

namespace belljar::launcher {
namespace {

// The plan's flags are those of mount_setattr.
static_assert(kReadOnly == sys::kMountAttrReadOnly && kNoSuid == sys::kMountAttrNoSuid &&
              kNoDev == sys::kMountAttrNoDev && kNoExec == sys::kMountAttrNoExec);

Result<sys::UniqueFd> make_tree(const MapOwner& map) {
  return sys::mapped_tree(map.path, map.flags, {map.owner.uid, map.session.uid},
                          {map.owner.gid, map.session.gid});
}

std::optional<StepFailure> go_without(std::size_t index, const Step& step, const Error& error,
                                      std::vector<Degraded>& degraded) {
  const auto& map = std::get<MapOwner>(step.action);
  if (!map.prefer) return StepFailure{static_cast<int>(index), error};
  degraded.push_back({step.control, map.path + " is bound as it is: cannot " + error.what});
  return std::nullopt;
}

}  // namespace

std::optional<StepFailure> OwnMounts::set_up(const Plan& plan, std::vector<Degraded>& degraded) {
  for (std::size_t i = 0; i < plan.steps.size() && plan.steps[i].side == Side::kLauncher; ++i) {
    const Step& step = plan.steps[i];
    if (const auto* hold = std::get_if<HoldDirectories>(&step.action)) {
      for (const std::string& path : hold->paths) {
        Result<sys::UniqueFd> held =
            hold->shared ? sys::share_layer(path) : sys::hold_directory(path);
        if (!held) return StepFailure{static_cast<int>(i), held.error()};
        if (held->valid()) held_.push_back(std::move(*held));
      }
    }
    if (const auto* map = std::get_if<MapOwner>(&step.action)) {
      Result<sys::UniqueFd> tree = make_tree(*map);
      if (!tree) return go_without(i, step, tree.error(), degraded);
      tree_ = std::move(*tree);
    }
  }
  return std::nullopt;
}

std::optional<StepFailure> OwnMounts::give_tree_up(const Plan& plan,
                                                   std::vector<Degraded>& degraded) {
  if (!tree_.valid()) return std::nullopt;
  tree_.reset();
  const Error error{ErrorKind::kUnavailable,
                    ENOSYS,
                    "attach a mount with a mapped owner: the legacy back end has no move_mount",
                    {},
                    {}};
  for (std::size_t i = 0; i < plan.steps.size(); ++i)
    if (std::holds_alternative<MapOwner>(plan.steps[i].action))
      return go_without(i, plan.steps[i], error, degraded);
  return std::nullopt;
}

}  // namespace belljar::launcher
