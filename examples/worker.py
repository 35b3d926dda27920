"""A worker: handles orders, several at a time. Start more of them, and they share the work."""

import sys

import msgspec

import reknit

service = reknit.App(sys.argv[1] if sys.argv[1:] else "tcp://127.0.0.1:7440", name="billing")


class Order(msgspec.Struct):
    customer: str
    quantity: int


@service.on("orders/**", codec=Order, retries=5, concurrency=8, history=True)
async def book(event: reknit.TypedEvent[Order]) -> None:
    order = event.payload
    if order.quantity < 1:  # it can never be booked: a dead letter says why
        raise reknit.Reject("INVALID_ARGUMENT", "nothing was ordered")
    print(f"booked {order.quantity} for {order.customer}", flush=True)


if __name__ == "__main__":
    service.run()  # until SIGTERM or Ctrl-C: handlers that run may end
