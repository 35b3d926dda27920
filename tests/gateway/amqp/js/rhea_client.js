// One request of a test as JSON on the command line; prints what a receiver and a sender on rhea saw, as JSON.
const rhea = require(process.env.RHEA);
const { port, address, filter, default_outcome, answer } = JSON.parse(process.argv[2]);
const container = rhea.create_container();
const connection = container.connect({ host: "127.0.0.1", port, reconnect: false });
const outcomes = {
  released: () => rhea.message.released().described(),
  modified: () => rhea.message.modified({ delivery_failed: true, undeliverable_here: true }).described(),
  accepted: () => rhea.message.accepted().described(),
};
const source = { address };
if (filter) source.filter = rhea.filter.selector(filter);
if (default_outcome) source.default_outcome = outcomes[default_outcome]();
const receiver = connection.open_receiver({ source, autoaccept: false });
receiver.on("message", (context) => {
  const delivery = context.delivery;
  if (answer === "settle") delivery.update(true);
  if (answer === "reject") delivery.reject({ condition: "app:bad", description: "no good" });
  if (answer === "modify")
    delivery.modified({ undeliverable_here: true, message_annotations: { "x-opt-why": "late" } });
});
receiver.on("receiver_open", () => {
  const sender = connection.open_sender({ target: { address } });
  sender.once("sendable", () => sender.send({ body: "x" }));
  sender.on("settled", (context) => {
    const { error, delivery_failed, undeliverable_here, message_annotations } = context.delivery.remote_state ?? {};
    const echoed = receiver.remote.attach.source;
    const state = context.delivery.remote_state?.constructor?.composite_type ?? "";
    console.log(JSON.stringify({
      state,
      condition: error?.condition, description: error?.description,
      delivery_failed, undeliverable_here, message_annotations,
      filter: echoed.filter ?? null, default_outcome: echoed.default_outcome ?? null,
    }));
    connection.close();
  });
});
connection.on("connection_close", () => process.exit(0));
