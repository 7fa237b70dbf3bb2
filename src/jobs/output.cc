#include "jobs/output.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>

#include "base/terminal_style.h"
#include "base/text_bytes.h"

namespace lockstep {
namespace {

constexpr size_t kMaxPending = 1 << 20;
constexpr size_t kLastLines = 20, kMaxLastLineBytes = 1000;

bool is_same_file(int a, int b) {
  struct stat first = {}, second = {};
  return ::fstat(a, &first) == 0 && ::fstat(b, &second) == 0 && first.st_dev == second.st_dev &&
         first.st_ino == second.st_ino;
}

std::string prefix_of(int process, bool color) {
  constexpr std::array<int, 6> kColors = {36, 33, 32, 35, 34, 31};
  return color ? fmt::format("\033[{}m[{}]\033[0m", kColors[static_cast<size_t>(process) % kColors.size()], process)
               : fmt::format("[{}]", process);
}

winsize size_of(int fd) {
  winsize size = {};
  if (::ioctl(fd, TIOCGWINSZ, &size) != 0) size = {};
  return size;
}

}  // namespace

// A writable pipe accepts PIPE_BUF bytes without blocking.
OutputQueue::OutputQueue(int fd) : fd_(fd), max_write_(PIPE_BUF) {
  struct stat status = {};
  if (::fstat(fd, &status) == 0 && S_ISREG(status.st_mode)) max_write_ = kMaxPending;
}

void OutputQueue::add(std::string_view bytes) {
  if (!broken_) bytes_ += bytes;
}

void OutputQueue::write_some() {
  const ssize_t n = ::write(fd_, bytes_.data() + written_, std::min(max_write_, pending()));
  if (n < 0) {
    if (errno == EINTR || errno == EAGAIN) return;
    broken_ = true;
    if (errno != EPIPE) error_ = errno;
    bytes_.clear();
    written_ = 0;
    return;
  }
  written_ += static_cast<size_t>(n);
  if (written_ == bytes_.size()) {
    bytes_.clear();
    written_ = 0;
  } else if (written_ >= kMaxPending) {
    bytes_.erase(0, written_);
    written_ = 0;
  }
}

JobOutput::JobOutput(const OutputOptions& options)
    : options_(options),
      err_(std::make_unique<OutputQueue>(options.err)),
      can_draw_(terminal_style(options.err).redraws) {
  // Two queues to one file would mix lines.
  if (!is_same_file(options.out, options.err)) out_ = std::make_unique<OutputQueue>(options.out);
  const bool color_out = terminal_style(options.out).color, color_err = terminal_style(options.err).color;
  if (!options.logs.empty()) options.files->make_dirs(options.logs);
  for (int i = 0; i < options.processes; ++i) {
    Process& process = processes_.emplace_back();
    process.plain_prefix = prefix_of(i, false);
    process.out_prefix = prefix_of(i, color_out);
    process.err_prefix = prefix_of(i, color_err);
    if (!options.logs.empty()) process.log = options.files->create(fmt::format("{}/rank_{}.log", options.logs, i));
  }
}

void JobOutput::add_line(int number, Stream stream, const OutputLine& line) {
  Process& process = processes_[static_cast<size_t>(number)];
  remember(process, line);
  write_log(number, process, stream, line);
  if (options_.first_only && number != 0) return;
  const std::string& prefix = stream == Stream::out ? process.out_prefix : process.err_prefix;
  put(stream, prefix + (line.begins ? " " : "+ "), line.text);
}

void JobOutput::remember(Process& process, const OutputLine& line) {
  if (!line.begins || line.text.empty()) return;
  process.last.emplace_back(line.text.substr(0, kMaxLastLineBytes));
  if (process.last.size() > kLastLines) process.last.pop_front();
}

void JobOutput::write_log(int number, Process& process, Stream stream, const OutputLine& line) {
  if (!process.log) return;
  std::string text;
  if (process.open >= 0 && process.open != static_cast<int>(stream)) text += '\n';
  text += stream == Stream::err && number == 0 && can_draw_ ? without_escapes(line.text) : std::string(line.text);
  if (line.ends) text += '\n';
  process.open = line.ends ? -1 : static_cast<int>(stream);
  try {
    process.log->write(text_bytes(text));
  } catch (const IoError& error) {
    process.log.reset();
    print_message(fmt::format("the log of process {} ends here: {}", number, error.what()));
  }
}

// The status line as it is drawn. The cursor stays at its beginning; see LiveLine.
std::string JobOutput::status_line() const {
  return processes_[0].err_prefix + " " + fit_columns(drawn_, static_cast<size_t>(columns())) + "\033[J\r";
}

// Prints a line above the status line, if there is one.
void JobOutput::put(Stream stream, std::string_view prefix, std::string_view text) {
  OutputQueue& to = queue(stream);
  const bool over = !drawn_.empty() && &to == err_.get();
  if (over) to.add("\r\033[J");
  to.add(prefix);
  to.add(text);
  to.add("\n");
  if (over) to.add(status_line());
}

void JobOutput::draw(std::string_view unfinished) {
  if (unfinished == drawn_) return;
  drawn_ = unfinished;
  if (drawn_.empty())
    err_->add("\r\033[J");
  else
    err_->add("\r" + status_line());
}

void JobOutput::print_message(std::string_view line) { put(Stream::err, "lockstep launch: ", line); }

void JobOutput::show_last_lines(int number) {
  const Process& process = processes_[static_cast<size_t>(number)];
  const bool shown = !options_.first_only || number == 0;
  if (shown || process.last.empty()) return;
  print_message(fmt::format("the last lines of process {}:", number));
  for (const std::string& line : process.last) put(Stream::err, process.err_prefix + " ", line);
}

std::string JobOutput::last_line(int process) const {
  const std::deque<std::string>& last = processes_[static_cast<size_t>(process)].last;
  // Skip the line that names the flight record: it may follow the error message.
  const auto reason = std::find_if(last.rbegin(), last.rend(),
                                   [](const std::string& line) { return line.find("`lockstep blame ") == line.npos; });
  return reason == last.rend() ? "" : *reason;
}

void JobOutput::mark_restart(std::string_view line) {
  for (int i = 0; i < options_.processes; ++i) {
    Process& process = processes_[static_cast<size_t>(i)];
    process.last.clear();
    write_log(i, process, Stream::err, {line});
  }
}

int JobOutput::columns() const {
  const int columns = size_of(options_.err).ws_col;
  return std::max((columns > 0 ? columns : 80) - static_cast<int>(processes_[0].plain_prefix.size()) - 1, 1);
}

int JobOutput::rows() const { return std::max<int>(size_of(options_.err).ws_row, 1); }

std::vector<OutputQueue*> JobOutput::queues() {
  std::vector<OutputQueue*> out = {err_.get()};
  if (out_) out.push_back(out_.get());
  return out;
}

bool JobOutput::full() const { return err_->pending() > kMaxPending || (out_ && out_->pending() > kMaxPending); }
int JobOutput::error() const { return out_ && out_->error() != 0 ? out_->error() : err_->error(); }
bool JobOutput::pending() const { return err_->pending() > 0 || (out_ && out_->pending() > 0); }

}  // namespace lockstep
