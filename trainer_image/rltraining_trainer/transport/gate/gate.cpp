// The gate of the RPC port: torch's RPC agent, with a callback that serves Python calls of the job's members only.
//
// Without it torch serves every message type to every client that reaches the port, TorchScript builtins among them, and some of
// these read and write files (aten::from_file, aten::save). build.py compiles this file. Written for torch 2.8 to 2.15.

#include <torch/csrc/distributed/rpc/request_callback_impl.h>
#include <torch/csrc/distributed/rpc/tensorpipe_agent.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/version.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>
#include <fcntl.h>
#include <semaphore.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

using namespace torch::distributed::rpc;

namespace {

std::atomic<long> refused_calls{0};

class Gate : public RequestCallbackImpl {
 public:
  Gate(std::string key, std::string refusal) : key_(std::move(key)), refusal_(std::move(refusal)) {}

 protected:
  c10::intrusive_ptr<JitFuture> processMessage(
      Message& request, std::vector<c10::Stream> streams) const override {
    if (accepts(request))
      return RequestCallbackImpl::processMessage(request, std::move(streams));
    ++refused_calls;
    auto future = c10::make_intrusive<JitFuture>(at::AnyClassType::get());
    future->markCompleted(c10::IValue(createExceptionResponse(refusal_, request.id())));
    return future;
  }

 private:
  // The payload of a Python call is one byte of torch's, the key, and a pickle, of which nothing was read yet.
  bool accepts(const Message& request) const {
    if (request.type() != MessageType::PYTHON_CALL || request.payload().size() <= key_.size())
      return false;
    unsigned char difference = 0;  // compare in constant time
    for (size_t i = 0; i < key_.size(); ++i)
      difference |= request.payload()[i + 1] ^ key_[i];
    return difference == 0;
  }

  const std::string key_, refusal_;
};

std::shared_ptr<TensorPipeAgent> make_agent(
    const c10::intrusive_ptr<::c10d::Store>& store,
    const std::string& name,
    TensorPipeRpcBackendOptions options,
    const std::string& key,
    const std::string& refusal) {
  auto gate = std::make_unique<Gate>(key, refusal);
  return {new TensorPipeAgent(store, name, 0, 1, std::move(options), {}, {}, std::move(gate)),
          [](TensorPipeAgent* agent) {
            pybind11::gil_scoped_release no_gil;  // its threads may need it to end
            delete agent;
          }};
}

// Foreign bytes on the port end the process within TensorPipe, in the one thread that reads from connections. The exit code
// and the termination message tell such an end from a crash of the user's code.

const char* const READER = "TP_UV_loop";  // TensorPipe's name of that thread
char crash_path[4096];
char crash_message[1024];
int crash_exit_code;
struct sigaction earlier_handlers[NSIG];

void on_crash(int signal, siginfo_t* info, void* context) {
  char thread[16] = "";
  prctl(PR_GET_NAME, thread);
  if (std::strcmp(thread, READER) == 0) {
    const size_t length = std::strlen(crash_message);
    for (int file : {open(crash_path, O_WRONLY | O_CREAT | O_TRUNC, 0644), STDERR_FILENO})
      if (file >= 0 && write(file, crash_message, length) < 0)
        continue;
    _exit(crash_exit_code);
  }
  // Not ours: the signal comes again, to the handler that was there before, when this one returns.
  sigaction(signal, &earlier_handlers[signal], nullptr);
  if (info->si_code <= 0)  // sent by raise() or kill(), and not by an instruction that runs again
    raise(signal);
}

void on_foreign_bytes(const std::string& path, const std::string& message, int exit_code) {
  std::strncpy(crash_path, path.c_str(), sizeof crash_path - 1);
  std::strncpy(crash_message, message.c_str(), sizeof crash_message - 1);
  crash_exit_code = exit_code;
  static bool installed = false;  // agents may be created again, and this handler must not become its own predecessor
  if (std::exchange(installed, true))
    return;
  struct sigaction action = {};
  action.sa_sigaction = on_crash;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  for (int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL})
    sigaction(signal, &action, &earlier_handlers[signal]);
}

// A deeply nested table of tensors overflows the reader's stack, where the handler above then cannot run. The handler needs a
// separate stack, which only the thread itself can set, so a signal makes the reader do that.

alignas(64) char crash_stack[64 * 1024];
sem_t reader_is_ready;

// The kernel takes the stack from here when the handler returns; it would undo a call of sigaltstack().
void use_crash_stack(int, siginfo_t*, void* context) {
  static_cast<ucontext_t*>(context)->uc_stack = {crash_stack, 0, sizeof crash_stack};
  sem_post(&reader_is_ready);
}

// Call it for each agent, once the agent listens: each has another reader.
void survive_deep_tables() {
  pybind11::gil_scoped_release no_gil;
  struct sigaction action = {}, earlier;
  action.sa_sigaction = use_crash_stack;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  sem_init(&reader_is_ready, 0, 0);
  sigaction(SIGURG, &action, &earlier);  // ignored by default, so an additional signal is harmless
  std::error_code no_proc;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task", no_proc)) {
    std::string name;
    std::getline(std::ifstream(thread.path() / "comm"), name);
    if (name != READER || syscall(SYS_tgkill, getpid(), std::stoi(thread.path().filename()), SIGURG) != 0)
      continue;
    timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 1;
    while (sem_timedwait(&reader_is_ready, &until) != 0 && errno == EINTR)
      continue;
  }
  sigaction(SIGURG, &earlier, nullptr);
}

}  // namespace

PYBIND11_MODULE(_gate, module) {
  module.attr("TORCH_VERSION") = TORCH_VERSION;
  module.def("make_agent", &make_agent);
  module.def("refused_calls", [] { return refused_calls.load(); });
  module.def("on_foreign_bytes", &on_foreign_bytes);
  module.def("survive_deep_tables", &survive_deep_tables);
}
