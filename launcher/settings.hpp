// One-line changes of a policy, written as `--set` takes them: PATH=VALUE.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace belljar::launcher {

/// `filesystem.mounts["/etc/hosts"]={"type":"bind","source":"/etc/hosts","readonly":false}`
[[nodiscard]] std::string setting_that_binds(const std::string& source, const std::string& target,
                                             bool writable);

/// `filesystem.mask["/run/docker.sock"]="why"`
[[nodiscard]] std::string setting_that_masks(const std::string& path, std::string_view why);

/// `PATH="text"`
[[nodiscard]] std::string setting_of_text(const std::string& path, std::string_view text);

/// `PATH=["a","b"]`
[[nodiscard]] std::string setting_of_texts(const std::string& path,
                                           const std::vector<std::string>& texts);

/// `text` as one word of a POSIX shell, which reads nothing else in it.
[[nodiscard]] std::string shell_word(std::string_view text);

/// `--set 'PATH=VALUE'`, to be pasted into a shell.
[[nodiscard]] std::string as_option(const std::string& setting);

}  // namespace belljar::launcher
