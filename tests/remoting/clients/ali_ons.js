// The npm package `ali-ons` against a server: node ali_ons.js ADDRESS COMMAND [ARGUMENT…]
// send TOPIC COUNT | insist TOPIC COUNT PAUSE_S | push TOPIC GROUP COUNT [TAGS]; each prints JSON, one line for each message.
'use strict';

const { Consumer, Message, Producer } = require('ali-ons');

const SILENCE_MS = 2000;
const PUSH_MS = 60000;
const [ address, command, ...rest ] = process.argv.slice(2);
const httpclient = { request: async () => ({ status: 404 }) }; // the address is given: nobody is asked for it
const quiet = { info() {}, warn() {}, debug() {}, error: (...what) => console.error(...what) };
const common = { httpclient, nameSrv: address, logger: quiet };
const tell = facts => console.log(JSON.stringify(facts));
const pause = ms => new Promise(resolve => setTimeout(resolve, ms));

async function started(options) {
  const producer = new Producer({ ...common, producerGroup: 'node-producer', ...options });
  producer.on('error', error => console.error(error.message));
  await producer.ready();
  return producer;
}

function messageOf(topic, number) {
  const message = new Message(topic, `tag${number % 2}`, `node ${number}`);
  message.keys = [ `node-${number}` ];
  return message;
}

async function send(topic, count) {
  const producer = await started();
  for (let number = 0; number < Number(count); number++) {
    const result = await producer.send(messageOf(topic, number));
    tell({ id: result.msgId, status: result.sendStatus });
  }
  await producer.close();
}

async function insist(topic, count, pauseS) {
  const producer = await started({ sendMsgTimeout: 1000 });
  for (let number = 0; number < Number(count); number++) {
    for (let sent = false; !sent;) {
      try {
        await producer.send(messageOf(topic, number));
        sent = true;
      } catch (error) {
        console.error(error.message);
        await pause(100);
      }
    }
    tell({ body: `node ${number}` });
    await pause(1000 * pauseS);
  }
  await producer.close();
}

async function push(topic, group, count, tags) {
  const consumer = new Consumer({ ...common, consumerGroup: group });
  consumer.on('error', error => console.error(error.message));
  const seen = new Set();
  consumer.subscribe(topic, tags || '*', async ({ body, queueId, queueOffset, tags, keys }) => {
    seen.add(`${queueId} ${queueOffset}`);
    tell({ body: body.toString(), queue: queueId, offset: queueOffset, tags, keys });
  });
  await consumer.ready();
  for (let waited = 0; seen.size < Number(count) && waited < PUSH_MS; waited += 50) await pause(50);
  await pause(SILENCE_MS); // none comes twice
  await consumer.close();
}

({ send, insist, push })[command](...rest).then(() => process.exit(0), error => {
  console.error(error);
  process.exit(1);
});
