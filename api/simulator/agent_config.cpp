#include "api/simulator/agent_config.hpp"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace belljar::api {
namespace {

using policy::Parsed;

// Aliases make a short text a huge tree.
constexpr std::size_t kMostNodes = 100000;
constexpr int kMostDepth = 64;
constexpr std::string_view kHidden = "[hidden]", kCore = "tag:yaml.org,2002:";

/// yaml-cpp reports by exceptions, which end here.
template <class Function>
auto guarded(Function function) -> decltype(function()) {
  try {
    return function();
  } catch (const YAML::Exception& exception) {
    return tl::unexpected("config_yaml is not valid YAML: line " +
                          std::to_string(exception.mark.line + 1));
  }
}

/// A document as a value of its own: the library's nodes are references to each other.
struct Tree {
  enum class Kind { kNull, kScalar, kSequence, kMap };
  Kind kind = Kind::kNull;
  std::string tag, scalar;
  std::vector<Tree> elements;  ///< kSequence; kMap: the values.
  std::vector<Tree> keys;      ///< kMap: as many as elements.
};

/// Copies a document, aliases written out.
class Copier {
 public:
  Parsed<Tree> copy(const YAML::Node& root) {
    Tree tree = copy(root, 0);
    if (wrong_) return tl::unexpected<std::string>(wrong_);
    return tree;
  }

 private:
  Tree copy(const YAML::Node& node, int depth) {
    Tree tree;
    if (++nodes_ > kMostNodes || depth > kMostDepth) wrong_ = "config_yaml is too large";
    if (wrong_ != nullptr || !node.IsDefined() || node.IsNull()) return tree;
    tree.tag = node.Tag();
    if (!is_known(tree.tag)) wrong_ = "config_yaml is not valid YAML: an unknown tag";
    if (node.IsMap()) {
      tree.kind = Tree::Kind::kMap;
      for (const auto& entry : node) {
        tree.keys.push_back(copy(entry.first, depth + 1));
        tree.elements.push_back(copy(entry.second, depth + 1));
      }
    } else if (node.IsSequence()) {
      tree.kind = Tree::Kind::kSequence;
      for (const YAML::Node& element : node) tree.elements.push_back(copy(element, depth + 1));
    } else {
      tree.kind = Tree::Kind::kScalar;
      tree.scalar = node.Scalar();
    }
    return tree;
  }

  /// What a safe reader takes.
  static bool is_known(std::string_view tag) {
    return tag.empty() || tag == "?" || tag == "!" ||
           (tag.starts_with(kCore) && tag.find("python") == std::string_view::npos);
  }

  std::size_t nodes_ = 0;
  const char* wrong_ = nullptr;
};

Parsed<Tree> load(std::string_view text) {
  // The library recurses, and brackets are what makes it do so cheaply.
  if (std::count_if(text.begin(), text.end(), [](char c) { return c == '[' || c == '{'; }) > 2000)
    return tl::unexpected<std::string>("config_yaml is not valid YAML: too many brackets");
  return guarded([text]() -> Parsed<Tree> {
    const std::vector<YAML::Node> documents = YAML::LoadAll(std::string(text));
    if (documents.size() > 1)
      return tl::unexpected<std::string>("config_yaml is not valid YAML: more than one document");
    Parsed<Tree> root = documents.empty() ? Tree() : Copier().copy(documents[0]);
    if (!root) return root;
    if (root->kind == Tree::Kind::kNull) root->kind = Tree::Kind::kMap;
    if (root->kind != Tree::Kind::kMap)
      return tl::unexpected<std::string>("config_yaml must be a mapping");
    return root;
  });
}

bool names_secret(std::string key) {
  std::transform(key.begin(), key.end(), key.begin(), [](char c) {
    return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  });
  for (const char* word : {"KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "PWD",
                           "CREDENTIAL", "BEARER", "AUTHORIZATION"})
    if (key.find(word) != std::string::npos) return true;
  return key == "AUTH" || key.ends_with("_AUTH") || key.starts_with("AUTH_");
}

/// "Bearer …", "Basic …", or "http://user:password@host".
bool looks_secret(std::string_view text) {
  for (const char* scheme : {"Bearer ", "bearer ", "Basic ", "basic "})
    if (text.find(scheme) != std::string_view::npos) return true;
  for (std::size_t at = text.find("://"); at != std::string_view::npos; at = text.find("://", at)) {
    at += 3;
    const std::string_view authority = text.substr(at, text.find_first_of("/ \t\n", at) - at);
    const std::size_t user = authority.find('@');
    if (user != std::string_view::npos && authority.substr(0, user).find(':') < user) return true;
  }
  return false;
}

/// Writes a tree out so that a reader resolves every scalar as it stood: the library's own writer
/// of nodes forgets which were quoted, and the string "123" would come back as a number.
class Writer {
 public:
  enum class Secrets { kKeep, kHide };
  /// `known` outlives it: what is hidden wherever it stands, with kHide.
  explicit Writer(Secrets secrets, const std::vector<std::string>* known = nullptr)
      : secrets_(secrets), known_(known) {}

  std::string write(const Tree& root) {
    put(root, false);
    return std::string(out_.c_str(), out_.size()) + '\n';
  }

 private:
  void put(const Tree& tree, bool hide) {
    switch (tree.kind) {
      case Tree::Kind::kNull:
        out_ << YAML::Null;
        break;
      case Tree::Kind::kScalar:
        put_scalar(tree, hide);
        break;
      case Tree::Kind::kSequence:
        out_ << YAML::BeginSeq;
        for (const Tree& element : tree.elements) put(element, hide);
        out_ << YAML::EndSeq;
        break;
      case Tree::Kind::kMap:
        out_ << YAML::BeginMap;
        for (std::size_t i = 0; i < tree.keys.size(); ++i) {
          out_ << YAML::Key;
          put(tree.keys[i], false);
          out_ << YAML::Value;
          put(tree.elements[i],
              hide || (secrets_ == Secrets::kHide && names_secret(tree.keys[i].scalar)));
        }
        out_ << YAML::EndMap;
        break;
    }
  }

  /// Of one that is shorter nearly every text has something in it: that is hidden where it is all.
  static constexpr std::size_t kTelling = 4;

  [[nodiscard]] bool holds_secret(const std::string& text) const {
    if (secrets_ != Secrets::kHide) return false;
    if (looks_secret(text)) return true;
    return known_ != nullptr &&
           std::any_of(known_->begin(), known_->end(), [&](const auto& secret) {
             return secret.size() < kTelling ? text == secret
                                             : text.find(secret) != std::string::npos;
           });
  }

  void put_scalar(const Tree& tree, bool hide) {
    if ((hide || holds_secret(tree.scalar)) && !tree.scalar.empty())
      out_ << YAML::DoubleQuoted << std::string(kHidden);
    else if (tree.tag == "!" || tree.tag == std::string(kCore) + "str")
      out_ << YAML::DoubleQuoted << tree.scalar;
    else if (tree.tag.empty() || tree.tag == "?")
      out_ << tree.scalar;
    else
      out_ << YAML::VerbatimTag(tree.tag) << tree.scalar;
  }

  Secrets secrets_;
  const std::vector<std::string>* known_;
  YAML::Emitter out_;
};

Tree scalar(std::string text, const char* tag) {
  Tree tree;
  tree.kind = Tree::Kind::kScalar;
  tree.scalar = std::move(text);
  tree.tag = tag;
  return tree;
}

/// The only member of that name: of several the last one counts, as for the agent's own reader.
Tree& member(Tree& map, const std::string& key) {
  bool found = false;
  Tree last;
  last.kind = Tree::Kind::kMap;
  for (std::size_t i = map.keys.size(); i-- > 0;) {
    if (map.keys[i].kind != Tree::Kind::kScalar || map.keys[i].scalar != key) continue;
    if (!found) last = std::move(map.elements[i]);
    found = true;
    map.keys.erase(map.keys.begin() + static_cast<std::ptrdiff_t>(i));
    map.elements.erase(map.elements.begin() + static_cast<std::ptrdiff_t>(i));
  }
  map.keys.push_back(scalar(key, "?"));
  return map.elements.emplace_back(std::move(last));
}

/// The mapping at a path, made where there is none; null where something else stands there.
Parsed<Tree*> section(Tree& root, std::initializer_list<const char*> path) {
  Tree* at = &root;
  for (const char* key : path) {
    at = &member(*at, key);
    if (at->kind != Tree::Kind::kMap)
      return tl::unexpected("config_yaml: " + std::string(key) + " must be a mapping");
  }
  return at;
}

struct CredentialPlace {
  const char *variable, *service, *key;
};
constexpr CredentialPlace kPlaces[] = {{"OPENAI_API_KEY", "openai", "api_key"},
                                       {"HUGGINGFACEHUB_API_TOKEN", "huggingface", "token"},
                                       {"REPLICATE_API_TOKEN", "replicate", "api_key"}};

}  // namespace

Parsed<std::string> agent_config(std::string_view yaml, std::uint16_t port,
                                 const std::map<std::string, std::string>& credentials) {
  Parsed<Tree> root = load(yaml);
  if (!root) return tl::unexpected(root.error());
  const Parsed<Tree*> server = section(*root, {"platforms", "websocket"});
  if (!server) return tl::unexpected(server.error());
  member(**server, "host") = scalar("127.0.0.1", "?");
  member(**server, "port") = scalar(std::to_string(port), "?");
  for (const CredentialPlace& place : kPlaces) {
    const auto credential = credentials.find(place.variable);
    if (credential == credentials.end()) continue;
    const Parsed<Tree*> service = section(*root, {"nlp", place.service});
    if (!service) return tl::unexpected(service.error());
    member(**service, place.key) = scalar(credential->second, "!");
  }
  return Writer(Writer::Secrets::kKeep).write(*root);
}

std::string without_secrets(std::string_view yaml, const std::vector<std::string>& secrets) {
  const Parsed<Tree> root = load(yaml);
  if (!root) return "[Not shown: it is no YAML mapping, and could hold credentials]\n";
  return Writer(Writer::Secrets::kHide, &secrets).write(*root);
}

}  // namespace belljar::api
