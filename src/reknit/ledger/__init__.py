"""The ledger: published = accepted + dead-lettered + lost + in flight, for every topic and durable subscriber.

`ledger.py` has the whole, `account.py` one durable subscriber, `topics.py` the topics with their totals, and
`letters.py` the dead letters that were handled. `walk.py` goes through all of it in steps, and `rows.py` adds up the
lines that people read.
"""

from reknit.ledger.account import ANYCAST as ANYCAST
from reknit.ledger.account import COPIES as COPIES
from reknit.ledger.account import OF_GATEWAYS as OF_GATEWAYS
from reknit.ledger.account import QUEUES as QUEUES
from reknit.ledger.account import Account as Account
from reknit.ledger.account import Series as Series
from reknit.ledger.account import account_pattern as account_pattern
from reknit.ledger.account import seqs_within as seqs_within
from reknit.ledger.ledger import Ledger as Ledger
from reknit.ledger.letters import HandledLetters as HandledLetters
from reknit.ledger.letters import Redriven as Redriven
from reknit.ledger.rows import Held as Held
from reknit.ledger.rows import LedgerRow as LedgerRow
