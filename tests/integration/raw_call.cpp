// What a stranger of torch RPC can send besides what torch's Python offers: any registered operator, by its schema.
#include <torch/csrc/distributed/rpc/rpc_agent.h>
#include <torch/csrc/distributed/rpc/tensorpipe_agent.h>
#include <torch/csrc/jit/serialization/pickle.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/version.h>

using namespace torch::distributed::rpc;

namespace {

// Raises what the callee answers as an error.
void call_operator(int64_t id, const std::string& name, const std::string& schema, const std::vector<std::string>& arguments) {
  std::vector<c10::IValue> values(arguments.begin(), arguments.end());
  values.emplace_back(schema);
  values.emplace_back("torch.ops.aten.any");  // names an operator to torch
  std::vector<at::Tensor> tensors;
  auto payload = torch::jit::pickle(c10::ivalue::Tuple::create(values), &tensors);
  auto message = c10::make_intrusive<Message>(std::move(payload), std::move(tensors), MessageType::SCRIPT_CALL);
  pybind11::gil_scoped_release no_gil;
  RpcAgent::getCurrentRpcAgent()->send(WorkerInfo(name, id), std::move(message), 5.0)->waitAndThrow();
}

}  // namespace

PYBIND11_MODULE(_gate, module) {  // the name that the trainer's build gives to what it compiles
  module.attr("TORCH_VERSION") = TORCH_VERSION;
  module.def("call_operator", &call_operator);
}
