#include "launcher/compile.hpp"

#include <linux/filter.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>

#include "launcher/sys/landlock.hpp"

namespace belljar::launcher {
namespace {

/// Collects the image's variable parts and hands out their offsets. Offset 0 is the header, so 0
/// can mean "none".
class Builder {
 public:
  Builder() : bytes_(sizeof(Image)) {}

  std::uint32_t text(std::string_view value) {
    const std::uint32_t offset = append(value.data(), value.size(), 1);
    bytes_.push_back(std::byte{0});
    return offset;
  }

  template <class T>
  std::uint32_t array(const T* values, std::size_t count) {
    return append(values, count * sizeof(T), alignof(std::max_align_t));
  }

  std::uint32_t texts(const std::vector<std::string>& values) {
    std::vector<std::uint32_t> offsets;
    offsets.reserve(values.size());
    for (const std::string& value : values) offsets.push_back(text(value));
    return array(offsets.data(), offsets.size());
  }

  std::uint32_t room(std::size_t size) {
    align(alignof(std::max_align_t));
    const auto offset = static_cast<std::uint32_t>(bytes_.size());
    bytes_.resize(bytes_.size() + size);
    return offset;
  }

  std::vector<std::byte> finish(Image header) && {
    align(alignof(std::max_align_t));
    header.size = static_cast<std::uint32_t>(bytes_.size());
    std::memcpy(bytes_.data(), &header, sizeof header);
    return std::move(bytes_);
  }

 private:
  void align(std::size_t alignment) {
    bytes_.resize((bytes_.size() + alignment - 1) / alignment * alignment);
  }

  std::uint32_t append(const void* data, std::size_t size, std::size_t alignment) {
    align(alignment);
    const auto offset = static_cast<std::uint32_t>(bytes_.size());
    const auto* from = static_cast<const std::byte*>(data);
    bytes_.insert(bytes_.end(), from, from + size);
    return offset;
  }

  std::vector<std::byte> bytes_;
};

std::string tmpfs_options(std::uint64_t size, std::uint64_t inodes, mode_t mode) {
  std::array<char, 96> text{};
  if (inodes == 0) {
    if (size != 0) return "size=" + std::to_string(size) + tmpfs_options(0, 0, mode).insert(0, ",");
    std::snprintf(text.data(), text.size(), "mode=%04o", mode);
    return text.data();
  }
  std::snprintf(text.data(), text.size(), "size=%llu,nr_inodes=%llu,mode=%04o",
                static_cast<unsigned long long>(size), static_cast<unsigned long long>(inodes),
                mode);
  return text.data();
}

Op op(OpCode code) {
  Op made;
  made.code = code;
  return made;
}

/// One overload per action, as in plan.cpp. The launcher's own actions have no operation.
struct Lower {
  Builder& builder;
  const Plan& plan;
  const Surroundings& surroundings;

  std::optional<Op> operator()(const SetGroups&) const { return std::nullopt; }
  std::optional<Op> operator()(const JoinNamespace&) const { return std::nullopt; }
  std::optional<Op> operator()(const MakeCgroup&) const { return std::nullopt; }
  std::optional<Op> operator()(const LimitCgroup&) const { return std::nullopt; }
  std::optional<Op> operator()(const MeterCpuTime&) const { return std::nullopt; }
  std::optional<Op> operator()(const RelayOutput&) const { return std::nullopt; }
  std::optional<Op> operator()(const MeasureDisk&) const { return std::nullopt; }
  std::optional<Op> operator()(const HoldDirectories&) const { return std::nullopt; }
  std::optional<Op> operator()(const MapOwner&) const { return std::nullopt; }
  std::optional<Op> operator()(const AttachNetwork&) const { return std::nullopt; }
  std::optional<Op> operator()(const PublishPorts&) const { return std::nullopt; }
  std::optional<Op> operator()(const CreateNamespaces&) const { return std::nullopt; }

  std::optional<Op> operator()(const MapIds& a) const {
    Op made = op(OpCode::kMapIds);
    made.s0 = builder.text(map_lines(a.uids));
    made.s1 = builder.text(map_lines(a.gids));
    return made;
  }
  std::optional<Op> operator()(const TakeIds& a) const {
    Op made = op(OpCode::kTakeIds);
    made.a = a.uid;
    made.b = a.gid;
    return made;
  }
  std::optional<Op> operator()(const EnterTimeNamespace& a) const {
    Op made = op(OpCode::kEnterTime);
    if (const std::string lines = time_offset_lines(a); !lines.empty())
      made.s0 = builder.text(lines);
    const auto nanoseconds = [](std::chrono::milliseconds value) {
      return static_cast<std::uint64_t>(std::chrono::nanoseconds(value).count());
    };
    made.a = nanoseconds(a.monotonic);
    made.b = nanoseconds(a.boottime);
    return made;
  }
  std::optional<Op> operator()(const GuardInit& a) const {
    Op made = op(OpCode::kGuardInit);
    if (a.dumpable) made.a |= kGuardDumpable;
    if (a.in_session) made.a |= kGuardInSession;
    return made;
  }
  std::optional<Op> operator()(const JoinKeyring&) const { return op(OpCode::kJoinKeyring); }
  std::optional<Op> operator()(const RaiseLoopback&) const { return op(OpCode::kRaiseLoopback); }
  std::optional<Op> operator()(const HandOverNamespaces&) const {
    return op(OpCode::kHandOverNamespaces);
  }
  std::optional<Op> operator()(const AwaitNetwork&) const { return op(OpCode::kAwaitNetwork); }
  std::optional<Op> operator()(const CoverFile& a) const {
    Op made = op(OpCode::kCoverFile);
    made.s0 = builder.text(a.path);
    made.s1 = builder.text(a.content);
    made.a = a.content.size();
    return made;
  }
  std::optional<Op> operator()(const SetHostname& a) const {
    Op made = op(OpCode::kSetHostname);
    made.s0 = builder.text(a.name);
    made.a = a.name.size();
    return made;
  }
  std::optional<Op> operator()(const AttachRoot& a) const {
    Op made = op(OpCode::kAttachRoot);
    if (a.source) made.s0 = builder.text(*a.source);
    made.s1 = builder.text("size=16m,mode=0755");
    made.a = a.flags;
    return made;
  }
  std::optional<Op> operator()(const BindMount& a) const {
    Op made = op(OpCode::kBindMount);
    made.s0 = builder.text(a.source);
    made.s1 = builder.text(a.target);
    made.a = a.flags;
    if (a.optional) made.b |= kBindOptional;
    if (a.if_reachable) made.b |= kBindIfReachable;
    if (a.may_create) made.b |= kBindMayCreate;
    if (a.same_as >= 0) made.b |= kBindSameAs, made.c = static_cast<std::uint64_t>(a.same_as);
    if (a.mapped) made.c = static_cast<std::uint64_t>(1 + surroundings.mapped_tree);
    return made;
  }
  std::optional<Op> operator()(const MountTmpfs& a) const {
    Op made = op(OpCode::kMountTmpfs);
    made.s0 = builder.text(a.target);
    made.s1 = builder.text(tmpfs_options(a.size, a.inodes, a.mode));
    made.a = a.flags;
    made.b = a.may_create;
    return made;
  }
  std::optional<Op> operator()(const MountOverlay& a) const {
    OverlayLayers layers;
    layers.layers = builder.texts(a.layers);
    layers.count = static_cast<std::uint32_t>(a.layers.size());
    if (!a.upper.empty()) layers.upper = builder.text(a.upper);
    if (!a.upper.empty()) layers.work = builder.text(a.work);
    if (a.memory) {
      layers.memory = builder.text(tmpfs_options(a.memory->size, a.memory->inodes, 0700));
      layers.mode = a.memory->mode;
    }
    Op made = op(OpCode::kMountOverlay);
    made.s0 = builder.text(a.target);
    made.s1 = builder.array(&layers, 1);
    made.a = a.flags;
    made.b = a.may_create;
    return made;
  }
  std::optional<Op> operator()(const MountMqueue& a) const {
    Op made = op(OpCode::kMountMqueue);
    made.s0 = builder.text(a.target);
    made.b = a.may_create;
    return made;
  }
  std::optional<Op> operator()(const MountProc& a) const {
    Op made = op(OpCode::kMountProc);
    made.s0 = builder.text(a.target);
    made.s1 = builder.text(a.options);
    made.a = static_cast<std::uint64_t>(a.first);
    made.b = a.may_create;
    made.c = a.weaker;
    return made;
  }
  std::optional<Op> operator()(const MountDev& a) const {
    Op made = op(OpCode::kMountDev);
    made.s0 = builder.text(a.target);
    made.s1 = builder.text(tmpfs_options(a.shm_size, a.shm_inodes, 01777));
    made.a = a.shm_flags;
    made.b = a.may_create;
    if (a.queues) made.c |= kDevQueues;
    if (a.literal) made.c |= kDevLiteral;
    if (a.console) made.c |= kDevConsole;
    return made;
  }
  std::optional<Op> operator()(const MakeDirectory& a) const {
    Op made = op(OpCode::kMakeDirectory);
    made.s0 = builder.text(a.path);
    made.a = a.mode;
    return made;
  }
  std::optional<Op> operator()(const MakeSymlink& a) const {
    Op made = op(OpCode::kMakeSymlink);
    made.s0 = builder.text(a.path);
    made.s1 = builder.text(a.text);
    return made;
  }
  std::optional<Op> operator()(const MakeFile& a) const {
    Op made = op(OpCode::kMakeFile);
    made.s0 = builder.text(a.path);
    made.s1 = builder.text(a.content);
    made.a = a.mode;
    made.b = a.content.size();
    return made;
  }
  std::optional<Op> operator()(const MaskPath& a) const {
    Op made = op(OpCode::kMaskPath);
    made.s0 = builder.text(a.path);
    return made;
  }
  std::optional<Op> operator()(const SettleMountFlags&) const {
    return op(OpCode::kSettleMountFlags);
  }
  std::optional<Op> operator()(const SealRoot&) const { return op(OpCode::kSealRoot); }
  std::optional<Op> operator()(const ForbidUserNamespaces& a) const {
    Op made = op(OpCode::kForbidUserNamespaces);
    made.a = a.filtered_too;
    return made;
  }
  std::optional<Op> operator()(const PivotRoot&) const { return op(OpCode::kPivotRoot); }
  std::optional<Op> operator()(const OpenTerminal& a) const {
    Op made = op(OpCode::kOpenTerminal);
    made.a = a.further;
    if (a.settings) made.s0 = builder.array(&*a.settings, 1);
    made.s1 = builder.array(&a.size, 1);
    return made;
  }
  std::optional<Op> operator()(const TakeLandlock& a) const {
    LandlockSet set;
    set.files = a.files;
    set.tcp = a.tcp;
    set.scopes = a.scopes;
    if (a.abi >= 7) set.restrict_flags = sys::kLandlockNoLogOfOwn;
    set.checked_tcp = static_cast<std::uint32_t>(a.tcp);
    std::vector<LandlockRule> rules;
    for (const LandlockPath& path : a.paths)
      rules.push_back({.what = builder.text(path.path), .access = path.access});
    set.paths = builder.array(rules.data(), rules.size());
    set.path_count = static_cast<std::uint32_t>(rules.size());
    rules.clear();
    for (const LandlockPort& port : a.ports) {
      rules.push_back({.what = port.port, .access = port.access});
      if (port.port == 0) set.checked_tcp &= ~static_cast<std::uint32_t>(port.access);
    }
    set.ports = builder.array(rules.data(), rules.size());
    set.port_count = static_cast<std::uint32_t>(rules.size());
    const std::vector<std::int32_t> descriptors(a.descriptors.begin(), a.descriptors.end());
    set.descriptors = builder.array(descriptors.data(), descriptors.size());
    set.descriptor_count = static_cast<std::uint32_t>(descriptors.size());
    Op made = op(OpCode::kTakeLandlock);
    made.s0 = builder.array(&set, 1);
    return made;
  }
  std::optional<Op> operator()(const CheckNamespaces& a) const {
    Op made = op(OpCode::kCheckNamespaces);
    made.a = a.created;
    return made;
  }
  std::optional<Op> operator()(const DropCapabilities& a) const {
    Op made = op(OpCode::kDropCapabilities);
    made.a = a.keep;
    return made;
  }
  std::optional<Op> operator()(const CheckInit& a) const {
    Op made = op(OpCode::kCheckInit);
    made.s0 = a.further;
    made.a = a.uid;
    made.b = a.gid;
    made.c = a.capabilities;
    return made;
  }
  std::optional<Op> operator()(const ForgetLauncher&) const { return op(OpCode::kForgetLauncher); }
  std::optional<Op> operator()(const TakeStreams&) const { return op(OpCode::kTakeStreams); }
  std::optional<Op> operator()(const NewProcessGroup& a) const {
    Op made = op(OpCode::kNewProcessGroup);
    made.b = a.own_session;
    for (int fd : a.terminal) made.a |= std::uint64_t{1} << fd;
    return made;
  }
  std::optional<Op> operator()(const SetUmask& a) const {
    Op made = op(OpCode::kSetUmask);
    made.a = a.mask;
    return made;
  }
  std::optional<Op> operator()(const SetLimit& a) const {
    Op made = op(OpCode::kSetLimit);
    made.a = static_cast<std::uint64_t>(a.resource);
    made.b = a.value;
    return made;
  }
  std::optional<Op> operator()(const NullDescriptor& a) const {
    Op made = op(OpCode::kNullDescriptor);
    made.a = static_cast<std::uint64_t>(a.fd);
    return made;
  }
  std::optional<Op> operator()(const CloseDescriptors& a) const {
    Op made = op(OpCode::kCloseDescriptors);
    std::vector<std::int32_t> keep(a.keep.begin(), a.keep.end());
    std::sort(keep.begin(), keep.end());
    made.s0 = builder.array(keep.data(), keep.size());
    made.a = keep.size();
    return made;
  }
  std::optional<Op> operator()(const ChangeDirectory& a) const {
    Op made = op(OpCode::kChangeDirectory);
    made.s0 = builder.text(a.path);
    return made;
  }
  std::optional<Op> operator()(const SetNoNewPrivileges&) const {
    return op(OpCode::kSetNoNewPrivileges);
  }
  std::optional<Op> operator()(const InstallFilter& a) const {
    Op made = op(OpCode::kInstallFilter);
    made.s0 = builder.array(a.filter.instructions().data(), a.filter.instructions().size());
    made.a = a.filter.instructions().size();
    made.b = a.alone ? 2U : std::uint64_t{a.listens};
    return made;
  }
  std::optional<Op> operator()(const CheckPayload& a) const {
    Expectation expected;
    expected.uid = a.uid;
    expected.gid = a.gid;
    expected.umask = a.umask;
    expected.filters = a.filtered;
    expected.capabilities = a.capabilities;
    if (a.groups) expected.group_count = static_cast<std::int32_t>(a.groups->size());
    Op made = op(OpCode::kCheckPayload);
    made.a = a.when;
    made.s0 = builder.array(&expected, 1);
    return made;
  }
  std::optional<Op> operator()(const Exec& a) const {
    Op made = op(OpCode::kExec);
    made.s0 = builder.texts(a.candidates);
    made.a = a.candidates.size();
    return made;
  }
  std::optional<Op> operator()(const AwaitLauncher&) const { return op(OpCode::kAwaitLauncher); }
  std::optional<Op> operator()(const LiteralRoot&) const {
    Op made = op(OpCode::kLiteralRoot);
    made.a = kNoSuid | kNoDev;
    return made;
  }
  [[nodiscard]] Op with_path(OpCode code, const std::string& path) const {
    Op made = op(code);
    made.s0 = builder.text(path);
    return made;
  }
  static Op with_number(OpCode code, std::uint64_t number) {
    Op made = op(code);
    made.a = number;
    return made;
  }
  std::optional<Op> operator()(const RemountReadOnly& a) const {
    return with_path(OpCode::kRemountReadOnly, a.path);
  }
  std::optional<Op> operator()(const WriteFile& a) const {
    Op made = with_path(OpCode::kWriteFile, a.path);
    made.a = a.mode;
    made.b = static_cast<std::uint64_t>(a.descriptor);
    return made;
  }
  std::optional<Op> operator()(const BindData& a) const {
    Op made = with_path(OpCode::kBindData, a.target);
    made.a = a.flags;
    made.b = static_cast<std::uint64_t>(a.descriptor);
    made.c = a.mode;
    return made;
  }
  std::optional<Op> operator()(const ChangeMode& a) const {
    Op made = with_path(OpCode::kChangeMode, a.path);
    made.a = a.mode;
    return made;
  }
  std::optional<Op> operator()(const ProtectProc& a) const {
    return with_path(OpCode::kProtectProc, a.path);
  }
  std::optional<Op> operator()(const NestUser& a) const {
    Op made = with_path(OpCode::kNestUser, map_lines({a.uid}));
    made.s1 = builder.text(map_lines({a.gid}));
    return made;
  }
  std::optional<Op> operator()(const JoinUser& a) const {
    return with_number(OpCode::kJoinUser, static_cast<std::uint64_t>(a.descriptor));
  }
  std::optional<Op> operator()(const CheckNoUser&) const { return op(OpCode::kCheckNoUser); }
  std::optional<Op> operator()(const LockFile& a) const {
    return with_path(OpCode::kLockFile, a.path);
  }
  std::optional<Op> operator()(const NewSession&) const { return op(OpCode::kNewSession); }
  std::optional<Op> operator()(const SetSignalMask& a) const {
    return with_number(OpCode::kSetSignalMask, a.mask);
  }
  std::optional<Op> operator()(const SetCapabilities& a) const {
    Op made = with_number(OpCode::kSetCapabilities, a.keep);
    made.b = a.ambient;
    return made;
  }
  std::optional<Op> operator()(const DieWithLauncher&) const {
    return op(OpCode::kDieWithLauncher);
  }
  std::optional<Op> operator()(const Block& a) const {
    return with_number(OpCode::kBlock, static_cast<std::uint64_t>(a.descriptor));
  }
  std::optional<Op> operator()(const EnterDirectory& a) const {
    Op made = with_number(OpCode::kEnterDirectory, a.candidates.size());
    made.s0 = builder.texts(a.candidates);
    made.b = a.first_only;
    return made;
  }
  std::optional<Op> operator()(const StandBy&) const { return op(OpCode::kStandBy); }
};

}  // namespace

std::string map_lines(const std::vector<IdLine>& lines) {
  std::string text;
  for (const IdLine& line : lines)
    text += (text.empty() ? "" : "\n") + std::to_string(line.inside) + " " +
            std::to_string(line.outside) + " " + std::to_string(line.count);
  return text;
}

std::string time_offset_lines(const EnterTimeNamespace& action) {
  std::string lines;
  const auto add = [&lines](const char* clock, std::chrono::milliseconds offset) {
    if (offset.count() == 0) return;
    // The kernel takes no negative nanoseconds.
    const auto seconds = std::chrono::floor<std::chrono::seconds>(offset);
    const std::chrono::nanoseconds rest = offset - seconds;
    lines += std::string(clock) + " " + std::to_string(seconds.count()) + " " +
             std::to_string(rest.count()) + "\n";
  };
  add("monotonic", action.monotonic);
  add("boottime", action.boottime);
  return lines;
}

const char* back_end_name(BackEnd back_end) {
  return back_end == BackEnd::kModern ? "modern" : "legacy";
}

std::vector<std::byte> compile(const Plan& plan, const Surroundings& surroundings) {
  Builder builder;
  Image image;
  std::vector<Op> ops;
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    const Step& step = plan.steps[i];
    if (const auto* check = std::get_if<CheckInit>(&step.action)) {
      image.uid_inside = check->uid;
      image.gid_inside = check->gid;
    }
    if (const auto* map = std::get_if<MapIds>(&step.action))
      image.waits_for_maps = surroundings.privileged || map->by_helpers;
    if (const auto* create = std::get_if<CreateNamespaces>(&step.action)) {
      image.namespaces_step = static_cast<std::uint32_t>(i);
      image.namespace_flags = create->flags;
    }
    if (std::holds_alternative<StandBy>(step.action)) image.stands_by = 1;
    std::optional<Op> made = std::visit(Lower{builder, plan, surroundings}, step.action);
    if (!made) continue;
    if (step.side == Side::kInit) image.payload_op = static_cast<std::uint32_t>(ops.size()) + 1;
    made->step = static_cast<std::int32_t>(i);
    made->parents = static_cast<std::uint16_t>(step.parents);
    if (step.covers_root) made->parents |= kCoversRoot;
    ops.push_back(*made);
  }
  image.op_count = static_cast<std::uint32_t>(ops.size());
  image.ops = builder.array(ops.data(), ops.size());
  image.argc = static_cast<std::uint32_t>(plan.argv.size());
  image.argv = builder.texts(plan.argv);
  image.envc = static_cast<std::uint32_t>(plan.environment.size());
  image.envp = builder.texts(plan.environment);
  const std::size_t of_shell = plan.drop_in ? plan.argv.size() + 2 : 0;
  image.pointers =
      builder.room((plan.argv.size() + plan.environment.size() + 2 + of_shell) * sizeof(char*));
  image.uid_outside = plan.uid;
  image.gid_outside = plan.gid;
  image.privileged = surroundings.privileged;
  image.literal = plan.drop_in.has_value();
  if (plan.drop_in) {
    image.direct = plan.drop_in->direct;
    image.lingers = plan.drop_in->lingers;
    image.held = plan.drop_in->held;
  }
  image.legacy = surroundings.back_end == BackEnd::kLegacy;
  image.helped = surroundings.helped();
  image.joins = builder.array(surroundings.joins.data(), surroundings.joins.size());
  image.join_count = static_cast<std::uint32_t>(surroundings.joins.size());
  for (int i = 0; i < kNamespaceKinds; ++i)
    image.namespace_inodes[i] = surroundings.namespace_inodes[i];
  return std::move(builder).finish(image);
}

}  // namespace belljar::launcher
