#include "launcher/view.hpp"

#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>

#include "launcher/controls/paths.hpp"

namespace belljar::launcher {
namespace {

/// Where a step puts something; empty for steps that put nothing anywhere.
std::string target_of(const StepAction& action) {
  return std::visit(
      [](const auto& step) -> std::string {
        if constexpr (requires { step.target; })
          return step.target;
        else if constexpr (std::is_same_v<std::remove_cvref_t<decltype(step)>, AttachRoot>)
          return "/";
        else if constexpr (std::is_same_v<std::remove_cvref_t<decltype(step)>, MakeDirectory> ||
                           std::is_same_v<std::remove_cvref_t<decltype(step)>, MakeFile> ||
                           std::is_same_v<std::remove_cvref_t<decltype(step)>, MakeSymlink> ||
                           std::is_same_v<std::remove_cvref_t<decltype(step)>, MaskPath>)
          return step.path;
        else
          return {};
      },
      action);
}

/// What a step shows of the host; empty when it is nothing of the host's.
std::string source_of(const Step& step) {
  if (const auto* bind = std::get_if<BindMount>(&step.action)) return bind->source;
  const auto* root = std::get_if<AttachRoot>(&step.action);
  return root != nullptr && root->source ? *root->source : std::string();
}

/// The kernel's notes in a layer (Documentation/filesystems/overlayfs.rst): a device 0:0 for what
/// was removed, an attribute for a directory that hides those below.
bool is_whiteout(const struct stat& about) { return S_ISCHR(about.st_mode) && about.st_rdev == 0; }
bool is_opaque(const std::string& directory) {
  char value = 0;
  return lgetxattr(directory.c_str(), "user.overlay.opaque", &value, 1) == 1 && value == 'y';
}

/// What one layer says about a name.
struct Found {
  std::string path;    ///< The name on the host; empty: it is not there.
  bool final = false;  ///< Layers below are not asked.
};

Found find_in_layer(const std::string& layer, const std::string& path) {
  std::string here = layer;
  bool hides = false;
  for (std::size_t from = 0; from < path.size();) {
    const std::size_t end = std::min(path.find('/', from), path.size());
    here = join(here, path.substr(from, end - from));
    from = end + 1;
    struct stat about {};
    if (lstat(here.c_str(), &about) != 0) return {{}, hides};
    const bool last = from >= path.size();
    if (is_whiteout(about) || (!S_ISDIR(about.st_mode) && !last)) return {{}, true};
    hides = hides || (S_ISDIR(about.st_mode) && is_opaque(here));
  }
  return {here, true};
}

/// The topmost layer that has it decides.
std::string find_in_overlay(const MountOverlay& overlay, const std::string& path) {
  std::vector<std::string> layers = overlay.layers;
  if (!overlay.upper.empty()) layers.insert(layers.begin(), overlay.upper);
  if (path == overlay.target) return layers.front();
  for (const std::string& layer : layers)
    if (Found found = find_in_layer(layer, path.substr(overlay.target.size() + 1)); found.final)
      return found.path;
  return {};
}

/// An optional bind of what is not there: nothing is mounted, and no mount point made.
bool is_left_out(const StepAction& action) {
  const auto* bind = std::get_if<BindMount>(&action);
  struct stat about {};
  return bind != nullptr && bind->optional && lstat(bind->source.c_str(), &about) != 0 &&
         (errno == ENOENT || errno == ENOTDIR);
}

}  // namespace

View::View(const Plan& plan, const policy::Policy& policy) : policy_(policy) {
  for (const Step& step : plan.steps) {
    std::string target = target_of(step.action);
    if (target.empty() || is_left_out(step.action)) continue;
    targets_.insert(target);
    placed_.emplace_back(std::move(target), &step);
  }
}

const Step& View::covering(std::string_view path) const { return *covering(path, true); }

const Step& View::covering_unmasked(std::string_view path) const { return *covering(path, false); }

/// Never null: AttachRoot is in every plan. A mount comes after those above it, and a mask after
/// all mounts, so that it covers those below it as well.
const Step* View::covering(std::string_view path, bool masks) const {
  const Step* last = nullptr;
  for (const auto& [target, step] : placed_) {
    if (!is_within(path, target)) continue;
    if (masks || !std::holds_alternative<MaskPath>(step->action)) last = step;
  }
  return last;
}

std::vector<const Step*> View::masks_over(std::string_view path) const {
  std::vector<const Step*> masks;
  for (const auto& [target, step] : placed_)
    if (is_within(path, target) && std::holds_alternative<MaskPath>(step->action))
      masks.push_back(step);
  return masks;
}

bool View::holds_a_target(std::string_view path) const {
  return std::any_of(placed_.begin(), placed_.end(), [path](const auto& placed) {
    return is_within(placed.first, path) &&
           !std::holds_alternative<MaskPath>(placed.second->action);
  });
}

std::string View::on_host(const std::string& path) const { return on_host(path, covering(path)); }

std::string View::on_host_unmasked(const std::string& path) const {
  return on_host(path, *covering(path, false));
}

std::string View::on_host(const std::string& path, const Step& step) {
  if (const auto* overlay = std::get_if<MountOverlay>(&step.action))
    return find_in_overlay(*overlay, path);
  const std::string source = source_of(step), target = target_of(step.action);
  if (source.empty() || path == target) return source;
  return join(source, path.substr(target == "/" ? 1 : target.size() + 1));
}

std::string View::origin(const std::string& path) const {
  const std::string where = policy_.where(path);
  return (where.empty() ? "by default" : where) + " " + path;
}

std::string View::line(const Step& step) const {
  return step.because.empty() ? "a default of belljar" : origin(step.because);
}

/// What the link at `path` says, of the plan or of the host.
std::optional<std::string> View::link_at(const std::string& path) const {
  const Step& step = covering(path);
  if (const auto* link = std::get_if<MakeSymlink>(&step.action)) return link->text;
  if (path == target_of(step.action)) return std::nullopt;
  const std::string name = on_host(path);
  std::array<char, PATH_MAX> text{};
  const ssize_t got = name.empty() ? -1 : readlink(name.c_str(), text.data(), text.size() - 1);
  if (got <= 0) return std::nullopt;
  return std::string(text.data(), static_cast<std::size_t>(got));
}

std::optional<std::string> View::follow(const std::string& path) const {
  std::string done = "/", rest = path;
  for (int links = 0; links <= 40;) {
    const std::size_t from = rest.find_first_not_of('/');
    if (from == std::string::npos) return done;
    const std::size_t end = std::min(rest.find('/', from), rest.size());
    const std::string name = rest.substr(from, end - from);
    rest.erase(0, end);
    if (name == ".") continue;
    if (name == "..") {
      done = parent_of(done);
      continue;
    }
    const std::string next = join(done, name);
    const std::optional<std::string> text = link_at(next);
    if (!text) {
      done = next;
      continue;
    }
    ++links;
    if (text->starts_with('/')) done = "/";
    rest = *text + "/" + rest;
  }
  return std::nullopt;
}

}  // namespace belljar::launcher
