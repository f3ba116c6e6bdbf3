// Reads flags through Flagsmith's SDK for browsers. The program defines a `window`, because without one the SDK counts
// no uses of flags.
globalThis.window = {};
const { createFlagsmithInstance } = require('flagsmith/isomorphic');
const { answer, failure, mapped } = require('./plan.js');

const pairs = (flagsmith) =>
  Object.fromEntries(Object.entries(flagsmith.getAllFlags()).map(([name, flag]) => [name, [flag.enabled, flag.value]]));

const storage = () => {
  const stored = new Map();
  return {
    getItem: async (key, done) => {
      const value = stored.get(key) ?? null;
      done?.(null, value);
      return value;
    },
    setItem: async (key, value) => void stored.set(key, value),
    removeItem: async (key) => void stored.delete(key),
  };
};

answer(async (plan) => {
  const started = async (options) => {
    const flagsmith = createFlagsmithInstance();
    await flagsmith.init({ environmentID: plan.key, api: process.env.FLAGSMITH_API_URL, AsyncStorage: storage(), ...options });
    return flagsmith;
  };

  // Returns what an application gets if no flags can be fetched: its default flags, and an error.
  const failing = async (options) => {
    const flagsmith = createFlagsmithInstance();
    const defaultFlags = { max_items: { id: 105, enabled: false, value: 'default of max_items' } };
    const seen = [];
    const onError = (error) => seen.push(error.message);
    const init = { environmentID: plan.key, AsyncStorage: storage(), defaultFlags, onError, ...options };
    const refused = await failure(() => flagsmith.init(init));
    return {
      default: [flagsmith.hasFeature('max_items'), flagsmith.getValue('max_items')],
      failed: refused !== null,
      told: seen.length > 0,
    };
  };

  const identity = async ({ identifier, traits, transient }) => {
    const given = Object.entries(traits ?? {}).map(([name, value]) => [name, { value, transient }]);
    const context = { environment: { apiKey: plan.key }, identity: { identifier, traits: Object.fromEntries(given), transient } };
    return started({ evaluationContext: context, environmentID: undefined });
  };

  const flagsmith = await started({});
  const anonymous = await identity({ ...plan.anonymous, identifier: undefined, transient: true });

  const changing = await started({});
  const before = changing.getValue('search_ranking');
  await changing.identify('guest-2');
  const identified = changing.getValue('search_ranking');
  await changing.setTraits({ orders: 10 });
  const withTrait = changing.getValue('max_items');
  await changing.logout();

  const counted = await started({ enableAnalytics: true, identity: 'guest-2' });
  const countedValue = [counted.hasFeature('search_ranking'), counted.getValue('search_ranking')];
  await counted.analyticsFlags();

  return {
    environment: pairs(flagsmith),
    identities: await mapped(plan.subjects, async (subject) => pairs(await identity(subject))),
    anonymous: pairs(anonymous),
    anonymous_is: anonymous.getContext().identity.identifier,
    changing: [before, identified, withTrait, changing.getValue('search_ranking'), changing.getValue('max_items')],
    object: flagsmith.getValue('api_limits', { json: true }),
    unknown: [flagsmith.hasFeature('unheard_of'), flagsmith.getValue('unheard_of')],
    unknown_with_default: [
      flagsmith.hasFeature('unheard_of', { fallback: true }),
      flagsmith.getValue('unheard_of', { fallback: 'default' }),
    ],
    wrong_key: await failing({ environmentID: 'harbour-client-key-of-another', api: process.env.FLAGSMITH_API_URL }),
    server_down: await failing({ api: `${plan.nobody}/api/v1/` }),
    analytics: countedValue,
  };
});
