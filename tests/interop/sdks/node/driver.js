'use strict';
/*
 * RocketMQ 5's client for Node.js under remote control: one JSON command a line on stdin, one JSON answer a line on stdout.
 *
 * The same commands as in the drivers for Python and Java.  Every delivery is an event with the number of times that this
 * process has seen the message, and a listener fails as often as it is told to.
 */
const readline = require('readline');
const { ConsumeResult, FilterExpression, Producer, PushConsumer, SimpleConsumer } = require('rocketmq-client-nodejs');
const proto = require('rocketmq-client-nodejs/proto/apache/rocketmq/v2/definition_pb');

const [ , , endpoints, tls ] = process.argv;
const producers = new Map();
const consumers = new Map();
const received = new Map();
let loading = 0; // number of the run that may go on
const silent = { info() {}, debug() {}, warn: console.error, error: console.error };
const resolutions = {
  commit: proto.TransactionResolution.COMMIT,
  rollback: proto.TransactionResolution.ROLLBACK,
  unknown: null,
};

function emit(line) {
  process.stdout.write(JSON.stringify(line) + '\n');
}

function pause(ms) {
  return new Promise(resolve => setTimeout(resolve, ms));
}

function options(more) {
  return Object.assign({ endpoints, namespace: '', logger: silent, requestTimeout: 10000, sslEnabled: tls === 'tls' }, more);
}

function described(message) {
  return {
    topic: message.topic, messageId: message.messageId, keys: message.keys, tag: message.tag,
    group: message.messageGroup || '', attempt: message.deliveryAttempt, body: message.body.toString(),
    colour: message.properties.get('colour'), isCorrupted: Boolean(message.corrupted),
  };
}

const checker = {
  async check(message) {
    emit(Object.assign({ event: 'checked' }, described(message)));
    return resolutions[message.properties.get('answer')];
  },
};

function producer(topic) {
  if (!producers.has(topic)) {
    const made = new Producer(options({ topics: [ topic ], checker }));
    producers.set(topic, made.startup().then(() => made));
    producers.get(topic).catch(() => producers.delete(topic));
  }
  return producers.get(topic);
}

async function open(command) {
  await producer(command.topic);
  return {};
}

function message(command, number) {
  const properties = new Map([ [ 'colour', 'blue' ], [ 'number', String(number) ] ]);
  if (command.execute) properties.set('answer', command.answer || 'unknown');
  const made = {
    topic: command.topic, body: Buffer.from(`${command.prefix}-${number}${command.padding || ''}`),
    keys: [ `${command.prefix}-key-${number}` ], tag: command.tag || 'TagA', properties,
  };
  if (command.group) made.messageGroup = command.group;
  if (command.deliver_in_ms) made.delay = command.deliver_in_ms;
  return made;
}

function row(receipt) {
  return { messageId: receipt.messageId, transactionId: receipt.transactionId, recallHandle: receipt.recallHandle };
}

async function transact(by, command, sent) {
  const transaction = by.beginTransaction();
  const receipt = await by.send(sent, transaction);
  emit({ event: 'executed', messageId: receipt.messageId });
  if (command.execute === 'halt') {
    await pause(50); // for the line to get out
    process.exit(1);
  }
  if (command.execute === 'commit') await transaction.commit();
  if (command.execute === 'rollback') await transaction.rollback();
  return row(receipt);
}

async function send(command) {
  const by = await producer(command.topic);
  const results = [];
  for (let i = 0; i < command.count; i++) {
    const sent = message(command, i);
    results.push(command.execute ? await transact(by, command, sent) : row(await by.send(sent)));
  }
  return { results };
}

async function recall(command) {
  const receipt = await (await producer(command.topic)).recallMessage(command.topic, command.handle);
  return { recalled: receipt.messageId };
}

/* Sends one message after the other until told to stop; each that is acknowledged is an event. */
async function load(command) {
  const by = await producer(command.topic);
  const run = ++loading;
  (async () => {
    let number = 0;
    for (; run === loading; number++) {
      const sent = message(Object.assign({}, command, { prefix: `${command.prefix}${number}` }), 0);
      try {
        await by.send(sent);
        emit({ event: 'acked', body: sent.body.toString() });
      } catch (err) {
        emit({ event: 'unacked', message: err.message });
        await pause(100);
      }
      await pause(command.pause_ms || 10);
    }
    emit({ event: 'unloaded', sent: number });
  })();
  return {};
}

async function unload() {
  loading++;
  return {};
}

function wanted(command) {
  const plain = new FilterExpression(command.expression || '*');
  const expression = command.sql ? new FilterExpression(command.sql, proto.FilterType.SQL) : plain;
  return new Map([ command.topic, ...(command.more_topics || []) ].map(topic => [ topic, expression ]));
}

async function subscribe(command) {
  const seen = new Map();
  const messageListener = {
    async consume(got) {
      const times = (seen.get(got.messageId) || 0) + 1;
      seen.set(got.messageId, times);
      emit(Object.assign({ event: 'message', consumer: command.id, times }, described(got)));
      if (command.slow_s) await pause(command.slow_s * 1000);
      const fails = command.fail || times <= (command.fail_times || 0);
      emit({ event: fails ? 'failed' : 'done', consumer: command.id, body: got.body.toString() });
      return fails ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
    },
  };
  const subscriptions = wanted(command);
  const made = new PushConsumer(options({ consumerGroup: command.consumer_group, subscriptions, messageListener }));
  await made.startup();
  consumers.set(command.id, made);
  return {};
}

async function simple(command) {
  const subscriptions = wanted(command);
  const awaitDuration = (command.await_s || 5) * 1000;
  const made = new SimpleConsumer(options({ consumerGroup: command.consumer_group, subscriptions, awaitDuration }));
  await made.startup();
  consumers.set(command.id, made);
  return {};
}

async function receive(command) {
  const found = await consumers.get(command.id).receive(command.count || 16, command.invisible_s * 1000);
  for (const one of found) received.set(one.messageId, one);
  return { messages: found.map(described) };
}

async function ack(command) {
  await consumers.get(command.id).ack(received.get(command.message));
  return {};
}

async function change(command) {
  await consumers.get(command.id).changeInvisibleDuration(received.get(command.message), command.invisible_s * 1000);
  return {};
}

async function close(command) {
  await consumers.get(command.id).shutdown();
  consumers.delete(command.id);
  return {};
}

async function end() {
  loading++;
  for (const one of consumers.values()) one.shutdown().catch(() => {});
  for (const one of producers.values()) one.then(made => made.shutdown()).catch(() => {});
  consumers.clear();
  producers.clear();
  received.clear();
  return {};
}

const operations = { open, send, recall, load, unload, subscribe, simple, receive, ack, change, close, end };

async function answer(command) {
  try {
    emit(Object.assign({ reply: command.reply, ok: true }, await operations[command.op](command)));
  } catch (err) {
    emit({ reply: command.reply, ok: false, error: err.name, code: err.code, message: String(err.message || err) });
  }
}

const lines = readline.createInterface({ input: process.stdin });
lines.on('line', line => {
  const command = JSON.parse(line);
  if (command.op === 'quit') process.exit(0);
  answer(command);
});
lines.on('close', () => process.exit(0));
process.on('unhandledRejection', err => emit({ event: 'unhandled', message: String(err && err.message) }));
emit({ event: 'ready' });
