"""What may cross a boundary, and the one place that lets it: collectives, local functions, sites, driver, ledger, journal."""

from .collectives import Agreed, At, Chain, Collective, Exchange, Gather, Local, Max, Progress, Sum
from .consensus import Graph
from .driver import Driver, Program
from .endpoint import SiteEndpoint
from .engine import Adopter, Connection, Costs, Engine, Job, Outcome, Post, Sites, Spreading, with_kept
from .gate import Gate
from .journal import Journal
from .keys import Trust
from .ledger import COORDINATOR, Ledger, Message, RoundRecord
from .letters import Identity, greeting, signed_by
from .local import Arrays, LocalFunction, Reply, find_local, local, wire_table
from .mail import MailConnection
from .plan import Plan
from .policy import Policy
from .purse import Entrusted, Limits, Purse, read_budget
from .secure_sum import Secured
from .site import Request, Response, Site, SiteServer
from .site_ledger import SiteLedger, read_site_ledger, shortened
from .tapping import tapped

__all__ = [
    "COORDINATOR", "Adopter", "Agreed", "Arrays", "At", "Chain", "Collective", "Connection", "Costs", "Driver", "Engine",
    "Entrusted", "Exchange", "Gate", "Gather", "Graph", "Identity", "Job", "Journal", "Ledger", "Limits", "Local",
    "LocalFunction", "MailConnection", "Max", "Message", "Outcome", "Plan", "Policy", "Post", "Program", "Progress", "Purse",
    "Reply", "Request", "Response", "RoundRecord", "Secured", "Site", "SiteEndpoint", "SiteLedger", "SiteServer", "Sites",
    "Spreading", "Sum", "Trust", "find_local", "greeting", "local", "read_budget", "read_site_ledger", "shortened", "signed_by",
    "tapped", "wire_table", "with_kept",
]  # fmt: skip
