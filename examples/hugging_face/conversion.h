#pragma once
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/files.h"
#include "core/tensor.h"
#include "examples/hugging_face/model_config.h"
#include "examples/hugging_face/weights.h"
#include "parallel/program/program.h"

namespace triax::hf {

/// A tensor of a Hugging Face model, and its elements in a parameter of the model here.
struct Part {
  std::string name;
  Shape shape;
  /// A view of the whole parameter that has these elements, row-major in the same order; of more
  /// dims where those are needed. None: the parameter as it is.
  std::function<Tensor(const Tensor& ours)> view = {};
};

/// A parameter here and the tensors there that it is made of, each element of one of them.
struct Rule {
  std::string ours;
  Shape full;
  std::vector<Part> parts;
};

/// x with its dims in another order.
Tensor permuted(const Tensor& x, const std::vector<int>& order);
/// The view of a matrix that is stored the other way round.
inline Tensor transposed(const Tensor& x) { return x.transpose(0, 1); }

/// A model that is to be imported.
struct Source {
  ModelConfig config;
  Weights weights;
};

/// How a model of this program looks in Hugging Face's transformers.
struct Architecture {
  std::string program;          ///< `minigpt`
  std::string name;             ///< its class: `GPT2LMHeadModel`
  std::string type;             ///< `gpt2`
  std::string prefix;           ///< that names of tensors may have or lack: `transformer.`
  parallel::Settings settings;  ///< of the model; all below read or write what they are bound to
  std::string table;            ///< the parameter whose rows are the vocabulary
  std::function<void(const ModelConfig&)> read;
  std::function<std::vector<std::pair<std::string, std::string>>()> config;  ///< keys, JSON values
  std::function<std::vector<Rule>()> rules;
  std::vector<std::string> ignored = {};  ///< ends of names: tensors that are no weights
  /// Tensors that may be there and then equal another: tied weights.
  std::map<std::string, std::string> copies = {};
  /// Opens a model that is one file, of another format; none: only directories are imported.
  std::function<Source(const std::string& path, const Files&)> open_file = {};
};

struct ImportOptions {
  std::string from, out;
};
struct ExportOptions {
  std::string checkpoint, to;
};

/// Makes a run directory `out` with the checkpoint step-0 of the weights in `from`, in f32, for
/// --init on any mesh, and the tokenizer's files in `out`/tokenizer. Throws Error 65 for what is
/// damaged or what a model here cannot express, 66 for missing files, 73 and 74, 78 if `out` is
/// taken; nothing is left behind then.
void import_model(const Architecture& a, const ImportOptions& o, const Files& files = disk());

/// The reverse, from a checkpoint of any mesh and precision: config.json, model.safetensors in f32,
/// and the tokenizer's files if they lie beside the checkpoint.
void export_model(const Architecture& a, const ExportOptions& o, const Files& files = disk());

/// The verbs `import` and `export` of a program.
std::vector<parallel::OwnVerb> conversion_verbs(const Architecture& a);

}  // namespace triax::hf
