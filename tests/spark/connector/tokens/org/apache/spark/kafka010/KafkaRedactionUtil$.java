package org.apache.spark.kafka010;

import scala.Tuple2;
import scala.collection.immutable.Seq;

/** Settings as they are logged: nothing in them is secret. */
public final class KafkaRedactionUtil$ {
    public static final KafkaRedactionUtil$ MODULE$ = new KafkaRedactionUtil$();

    public Seq<Tuple2<String, Object>> redactParams(Seq<Tuple2<String, Object>> settings) {
        return settings;
    }
}
