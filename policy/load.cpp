#include "policy/load.hpp"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "policy/layer_stack.hpp"
#include "policy/quote.hpp"

namespace belljar::policy {
namespace {

constexpr std::string_view kBuiltin = "builtin:";

std::string cannot_read(int error) {
  const char* const description = strerrordesc_np(error);
  const char* const name = strerrorname_np(error);
  return std::string("cannot read the policy: ") + (description ? description : "unknown error") +
         " (" + (name ? name : std::to_string(error)) + ")";
}

/// Reads up to one byte more than a policy may have, so that the parser sees that it is too long.
int read_bounded(int fd, std::string& text) {
  constexpr std::size_t kFirstRoom = 16 << 10;  // More than most policies have.
  text.resize(kFirstRoom);
  // A regular file is read in one call: there a short read is the end of it.
  const ssize_t whole = pread(fd, text.data(), text.size(), 0);
  if (whole >= 0 && static_cast<std::size_t>(whole) < text.size()) {
    text.resize(static_cast<std::size_t>(whole));
    return 0;
  }
  std::size_t size = 0;
  while (size <= kLongestText) {
    if (size == text.size()) text.resize(std::min(2 * size, kLongestText + 1));
    const ssize_t got = read(fd, text.data() + size, text.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno;
    if (got == 0) break;
    size += static_cast<std::size_t>(got);
  }
  text.resize(size);
  return 0;
}

/// 0, or the errno of the call that failed.
int read_file(const std::string& name, std::string& text) {
  const int fd = open(name.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY);
  if (fd < 0) return errno;
  const int error = read_bounded(fd, text);
  close(fd);
  return error;
}

}  // namespace

std::string Diagnostic::text() const {
  std::string out = where.text();
  out += ": ";
  if (!path.empty()) out += path + ": ";
  return out + message;
}

void Layers::add(std::string_view reference) {
  Layer layer;
  layer.label = reference.empty() ? "\"\"" : reference;
  if (reference.starts_with(kBuiltin)) {
    layer.kind = Layer::Kind::kPreset;
    layer.text = reference.substr(kBuiltin.size());
  } else if (reference.find('\0') != std::string_view::npos) {
    layer.kind = Layer::Kind::kUnreadable;
    layer.text = cannot_read(EINVAL);
  } else if (const int error = read_file(std::string(reference), layer.text); error != 0) {
    layer.kind = Layer::Kind::kUnreadable;
    layer.text = cannot_read(error);
    if (error == ENOENT && !preset_text(reference).empty())
      layer.text += "; the preset is called \"builtin:" + std::string(reference) + "\"";
  } else {
    layer.comments_allowed = reference.ends_with(".jsonc");
  }
  layers_.push_back(std::move(layer));
}

void Layers::add_text(std::string_view text, std::string_view label, bool comments_allowed) {
  Layer layer;
  layer.label = label;
  layer.text = text;
  layer.comments_allowed = comments_allowed;
  layers_.push_back(std::move(layer));
}

void Layers::add_setting(std::string_view path, std::string_view value, std::string_view label) {
  Layer layer;
  layer.kind = Layer::Kind::kSetting;
  layer.label = label;
  layer.text = value;
  layer.setting_path = path;
  layers_.push_back(std::move(layer));
}

tl::expected<Policy, Diagnostics> Layers::resolve() const {
  LayerStack stack(&preset_text);
  for (const Layer& layer : layers_) {
    switch (layer.kind) {
      case Layer::Kind::kText:
        stack.push_text(layer.text, layer.label,
                        layer.comments_allowed ? Comments::kAllowed : Comments::kRefused);
        break;
      case Layer::Kind::kPreset:
        stack.push_preset(layer.text);
        break;
      case Layer::Kind::kSetting:
        stack.push_setting(layer.setting_path, layer.text, layer.label);
        break;
      case Layer::Kind::kUnreadable:
        stack.push_failure(layer.label, layer.text);
        break;
    }
  }
  return std::move(stack).resolve();
}

}  // namespace belljar::policy
