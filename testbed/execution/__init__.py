"""Where clients work on this machine, and what they did before; neither changes a result."""

from testbed.execution.crew import Crew, open_crew
from testbed.execution.duties import Place, opened
from testbed.execution.executor import Clients, Executor, Trained, Tuned, open_executor
from testbed.execution.store import Store, open_store
from testbed.execution.tasks import Blueprint, task_of

__all__ = [
    "Blueprint",
    "Clients",
    "Crew",
    "Executor",
    "Place",
    "Store",
    "Trained",
    "Tuned",
    "open_crew",
    "open_executor",
    "open_store",
    "opened",
    "task_of",
]
