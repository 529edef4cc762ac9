"""Where client training runs on this machine; the place never changes a result."""

from testbed.execution.executor import Executor, Trained, Tuned, open_executor

__all__ = ["Executor", "Trained", "Tuned", "open_executor"]
