#pragma once
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "examples/hugging_face/source.h"
#include "triax/core/io/files.h"
#include "triax/core/tensor.h"
#include "triax/parallel/program/program.h"
#include "triax/parallel/tensor/lora.h"
#include "triax/parallel/train/step/replica.h"

namespace triax::hf {

/// A tensor of a Hugging Face model, and its elements in a parameter of the model here.
struct Part {
  std::string name;
  Shape shape;
  /// Returns a view of these elements in the parameter, row-major in the same order; with more dims
  /// where those are needed. None: the parameter as it is.
  std::function<Tensor(const Tensor& ours)> view = {};
  int64_t index = -1;  ///< 0 or more: the view sees this index of the parameter's dim 0 alone
};

/// A parameter here and the tensors there that it is made of, each element of one of them.
struct Rule {
  std::string ours;
  Shape full;
  std::vector<Part> parts;  ///< none: it is zero at first, and not exported
  /// The first part's other name, tied: either is there, or both and they are equal.
  std::string copy = {};
};
/// Returns the rule of a parameter that is a tensor there, as it is.
inline Rule same(std::string ours, std::string theirs, const Shape& full) {
  return {std::move(ours), full, {{std::move(theirs), full}}};
}

/// The keys of config.json and their values as JSON.
using Keys = std::vector<std::pair<std::string, std::string>>;
/// A key with one value for every model here.
struct FixedKey {
  const char* key;
  std::vector<std::string> allowed;  ///< as JSON; the first is written, and is meant where none is
  const char* why;                   ///< what models here have instead
};

/// A class of transformers and its model_type.
struct Class {
  std::string name, type;
};

/// The form of this program's model in Hugging Face's transformers.
struct Architecture {
  std::string program;       ///< `minigpt`
  std::string name;          ///< its class, or classes: `GPT2LMHeadModel`
  ModelConfig::Types types;  ///< `gpt2`
  /// Returns the class that has the settings, the one of type `wanted` if several have. Throws
  /// Error 78 if none has.
  std::function<Class(const std::string& wanted)> fitting;
  std::string prefix;           ///< that names of tensors may have or lack: `transformer.`
  parallel::Settings settings;  ///< the model's; all below read or write what they are bound to
  std::string base;             ///< that names of tensors lack in a model without head: `model.`
  std::string table;            ///< the parameter whose rows are the vocabulary
  int64_t* context;             ///< the size of the model that is its number of positions
  std::string positions;        ///< the tensor whose rows they are; empty: there is none
  /// The sizes of config.json, 1 or more, and the settings they set. First the number of layers.
  std::vector<std::pair<const char*, int64_t*>> sizes;
  std::vector<FixedKey> fixed;
  std::function<void(const ModelConfig&)> read;  ///< the other keys, behind the sizes; checks all
  std::function<Keys(const std::string& wanted)> config;  ///< the other keys, of that class
  std::function<std::vector<Rule>()> rules;
  std::vector<std::string> ignored = {};  ///< ends of names: tensors that are no weights
  int64_t* experts = nullptr;             ///< their number, each of which has tensors of its own
  const parallel::LoraOptions* lora = nullptr;
  bool transposed = false;  ///< matrices are [in, out] there
  /// Opens a model that is one file, of another format; none: only directories are imported.
  std::function<Source(const std::string& path, const Files&)> open_file = {};
};

struct ImportOptions {
  std::string from, out;
  int64_t context = 0;  ///< positions kept, the first ones; 0: all
};
struct ExportOptions {
  std::string checkpoint, to;
  parallel::Weights weights = parallel::Weights::trained;
  std::string tokenizer = {};  ///< a directory with the tokenizer's files; empty: see export_model
  DType dtype = f32;           ///< of the weights that are written
  double shard_gb = 5;         ///< gigabytes of one file, as transformers has them
  bool peft = false;           ///< the adapters alone, as PEFT's files
};

/// Gives the settings of the model the values of config.json. Throws Error 65 for features that
/// models here lack.
void read_config(const Architecture& a, const ModelConfig& config);
/// Throws Error 65 if a file's `tensors` are too few for the layers.
void check_layers(const Architecture& a, size_t tensors, const std::string& path);

/// Makes a run directory `out` with the checkpoint step-0 of the weights in `from`, in f32, for
/// --init on any mesh, and the tokenizer's files in `out`/tokenizer. Tensors may have the names of
/// a base model without head. Throws Error 65 for damaged files and for features that models here
/// lack, 66 for missing files, 73 and 74, 78 if `out` is taken; nothing is left behind then.
/// Returns lines about it.
std::string import_model(const Architecture& a, const ImportOptions& o,
                         const Files& files = disk());

/// Returns `path`; or, of a model directory, that of runs/imported to which it is imported, once
/// for each content: by the first of the processes that want it, while the others wait. Throws what
/// import_model throws.
std::string imported(const Architecture& a, const std::string& path);

/// Exports a checkpoint of any mesh and precision: config.json, model.safetensors with adapters
/// merged into the weights, and the files of the tokenizer: those of `o.tokenizer`, or beside the
/// checkpoint, or else of the one in it. config.json is of the class of the config.json
/// beside those files, if that fits, and names its ends of text, or else those of the tokenizer.
/// Throws Error 66 if `o.tokenizer` has none, 78 for the average of a run that kept none, and for a
/// model that transformers does not have.
void export_model(const Architecture& a, const ExportOptions& o, const Files& files = disk());

/// Returns the verbs `import` and `export` of a program.
std::vector<parallel::Verb> conversion_verbs(const Architecture& a);

}  // namespace triax::hf
